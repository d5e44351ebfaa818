// A multi-layer perceptron with residual blocks and dropout.

#ifndef TANDEM_MODELS_MLP_DROPOUT_H_
#define TANDEM_MODELS_MLP_DROPOUT_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"

namespace tandem {

struct MlpDropoutOptions {
  int64_t inputs = 1;  // numbers in one sample, whatever its shape
  int64_t classes = 1;
  int64_t blocks = 4;
  int64_t width = 32;
  double dropout = 0.1;
};

// [n, ...] -> [n, classes]. Layers: flatten, fc_in, block1, ..., blockN,
// fc_out.
LayerSpecs MlpDropout(const MlpDropoutOptions& options);

// x + fc2(dropout(relu(fc1(x)))), twice as wide inside. State names: fc1.*,
// fc2.*. [n, width] -> [n, width]
LayerSpec MlpBlock(const std::string& name, int64_t width, double dropout);

}  // namespace tandem

#endif  // TANDEM_MODELS_MLP_DROPOUT_H_
