// ResNet-18, -34 and -50 (He et al., "Deep Residual Learning for Image
// Recognition", 2016), with torchvision's state names, shapes, strides and
// initial distributions (torchvision.models.resnet18, ...), so that checkpoints
// can be exchanged.
//
// [n, channels, height, width] -> [n, classes], any height and width. Layers:
// conv1, bn1, relu, maxpool, layer1.0 ... layer4.M, avgpool, flatten, fc.

#ifndef TANDEM_MODELS_RESNET_H_
#define TANDEM_MODELS_RESNET_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

struct ResnetOptions {
  int64_t channels = 3;  // of the images
  int64_t classes = 1000;
  // Channels of layer1; the others have twice, four and eight times as many
  // channels. torchvision's is 64.
  int64_t width = 64;
};

LayerSpecs Resnet18(const ResnetOptions& options);
LayerSpecs Resnet34(const ResnetOptions& options);
LayerSpecs Resnet50(const ResnetOptions& options);

// torchvision's initial values for ResNet: convolutions kaiming_normal(fan_out,
// relu), that is N(0, 2 / fan_out); BatchNorm 1 and 0; the rest PyTorch's.
void ResnetInitialValues(const InitialParameter& parameter);

// The two kinds of residual block. Each is one layer, with the state names
// conv1.weight, bn1.*, conv2.weight, bn2.*, ..., and, where the shortcut
// changes the shape, downsample.0.weight (a 1x1 convolution) and downsample.1.*
// (BatchNorm).
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

#endif  // TANDEM_MODELS_RESNET_H_
