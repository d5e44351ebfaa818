// torch.nn's layers as LayerSpecs: `type` is the name of PyTorch's class, and
// state names, shapes and the meaning of arguments are PyTorch's.
//
// Images are [n, channels, height, width], float32.

#ifndef TANDEM_MODELS_LAYERS_BASIC_LAYERS_H_
#define TANDEM_MODELS_LAYERS_BASIC_LAYERS_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// [..., in_features] -> [..., out_features]
LayerSpec LinearLayer(const std::string& name, int64_t in_features,
                      int64_t out_features, bool bias = true,
                      InitialRule rule = PytorchDefault);

// Square kernels; the padding is zeros.
struct Conv2dShape {
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel_size = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = true;
  // Gives its output channels-last (the same shape, other strides), which is
  // several times faster where there are few input channels. What follows keeps
  // that layout, up to MaxPool2dLayer.
  bool channels_last = false;
};
LayerSpec Conv2dLayer(const std::string& name, const Conv2dShape& shape,
                      InitialRule rule = PytorchDefault);

// eps 1e-5, momentum 0.1, as in PyTorch.
LayerSpec BatchNorm2dLayer(const std::string& name, int64_t channels);

// Over the last dimension.
LayerSpec LayerNormLayer(const std::string& name, int64_t width,
                         double eps = 1e-5);

// Not in place: as the first layer of a stage its input is a leaf.
LayerSpec ReluLayer(const std::string& name);

// Its output is contiguous, whatever its input's layout.
LayerSpec MaxPool2dLayer(const std::string& name, int64_t kernel_size,
                         int64_t stride, int64_t padding = 0);

// AdaptiveAvgPool2d(1): [n, channels, height, width] -> [n, channels, 1, 1]
LayerSpec GlobalAvgPool2dLayer(const std::string& name);

// [n, ...] -> [n, size]
LayerSpec FlattenLayer(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_BASIC_LAYERS_H_
