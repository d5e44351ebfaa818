// Residual blocks of ResNet (He et al., "Deep Residual Learning for Image
// Recognition", 2016), as torchvision.models.resnet has them.

#ifndef TANDEM_MODELS_LAYERS_RESNET_BLOCK_H_
#define TANDEM_MODELS_LAYERS_RESNET_BLOCK_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// torchvision's initial values for ResNet: convolutions kaiming_normal(fan_out,
// relu), that is N(0, 2 / fan_out); BatchNorm 1 and 0; the rest PyTorch's.
void ResnetInitialValues(const InitialParameter& parameter);

// The two kinds of block. Each is one layer, with the state names conv1.weight,
// bn1.*, conv2.weight, bn2.*, ..., and, where the shortcut changes the shape,
// downsample.0.weight (a 1x1 convolution) and downsample.1.* (BatchNorm).
//
// [n, in_channels, h, w] -> [n, out_channels, ceil(h / stride), ceil(w /
// stride)]

// Two 3x3 convolutions, the first with the stride. out_channels = channels.
constexpr int64_t kBasicBlockExpansion = 1;
LayerSpec BasicBlock(const std::string& name, int64_t in_channels,
                     int64_t channels, int64_t stride);

// 1x1, 3x3 with the stride ("ResNet v1.5"), 1x1. out_channels = 4 x channels.
constexpr int64_t kBottleneckExpansion = 4;
LayerSpec Bottleneck(const std::string& name, int64_t in_channels,
                     int64_t channels, int64_t stride);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_RESNET_BLOCK_H_
