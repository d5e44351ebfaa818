// Multi-layer perceptrons: linear layers with ReLU between them.

#ifndef TANDEM_MODELS_MLP_H_
#define TANDEM_MODELS_MLP_H_

#include <cstdint>

#include "core/model/layer.h"

namespace tandem {

struct MlpOptions {
  int64_t inputs = 1;         // numbers in one sample, whatever its shape
  int64_t linear_layers = 1;  // in all, the one that gives the classes included
  int64_t width = 1;          // outputs of every linear layer but the last
  int64_t classes = 1;        // outputs of the last
};

// [n, ...] -> [n, classes]. Layers: flatten, fc1, relu1, fc2, relu2, ..., fcN.
// fc1 is inputs x width, the middle ones width x width, fcN width x classes.
LayerSpecs Mlp(const MlpOptions& options);

// 8 linear layers of width 64: seven with 64 outputs, the eighth the classes.
LayerSpecs MlpSmall(int64_t inputs, int64_t classes);
// 3 linear layers of width 2048.
LayerSpecs MlpWide(int64_t inputs, int64_t classes);
// 16 linear layers of width 512.
LayerSpecs MlpDeep(int64_t inputs, int64_t classes);

}  // namespace tandem

#endif  // TANDEM_MODELS_MLP_H_
