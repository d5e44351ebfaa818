// Models of the table of techniques and layouts (technique_layouts_test.cc).

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_MODELS_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_MODELS_H_

#include <cstdint>

#include "core/model/batch.h"
#include "core/model/layer.h"

namespace tandem {

constexpr int64_t kModelWidth = 9;   // of what linear layers take and give
constexpr int64_t kModelTokens = 6;  // of a transformer's sample

// Weights that get gradients from both parts of backward: that of a layer's
// product is left for later, that of a penalty on the weight comes at once.
LayerSpecs PenalisedModel();

// fc1's weight comes back in fc2, fc3, ..., each tied to it or to the one
// before. 5 classes.
LayerSpecs TiedModel(int users, bool chained);

// Images [3, 32, 32] to tokens whose numbers lie far apart, with a skip
// connection, and a head that takes what has gaps. 8 classes.
LayerSpecs SmallVisionTransformer();

LayerSpecs SmallGpt(int64_t vocabulary, bool tied);
LayerSpecs SmallLlama(int64_t vocabulary, bool tied);
// Samples of theirs, drawn anew for each step.
Batch TokenBatch(int64_t vocabulary, int64_t size, int step);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_TECHNIQUE_MODELS_H_
