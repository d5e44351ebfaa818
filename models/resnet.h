// ResNet-18, -34 and -50 (He et al., 2016), with torchvision's state names,
// shapes, strides and initial distributions (torchvision.models.resnet18, ...),
// so that checkpoints can be exchanged.
//
// [n, channels, height, width] -> [n, classes], any height and width. Layers:
// conv1, bn1, relu, maxpool, layer1.0 ... layer4.M, avgpool, flatten, fc.

#ifndef TANDEM_MODELS_RESNET_H_
#define TANDEM_MODELS_RESNET_H_

#include <cstdint>

#include "core/model/layer.h"

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

}  // namespace tandem

#endif  // TANDEM_MODELS_RESNET_H_
