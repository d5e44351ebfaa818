// Multi-layer perceptrons: linear layers with ReLU between them.
//
// A multi-layer perceptron with residual blocks and dropout.

#ifndef TANDEM_MODELS_MLP_H_
#define TANDEM_MODELS_MLP_H_

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
