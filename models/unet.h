// A small classifier in the shape of a U-Net (Ronneberger et al., "U-Net:
// Convolutional Networks for Biomedical Image Segmentation", 2015): two skip
// connections, one inside the other, declared so that it can be cut anywhere.

#ifndef TANDEM_MODELS_UNET_H_
#define TANDEM_MODELS_UNET_H_

#include <cstdint>

#include "core/model/layer.h"

namespace tandem {

struct UnetOptions {
  int64_t channels = 1;  // of the images
  int64_t classes = 1;
};

// Height and width that the pools need.
constexpr int64_t kUnetMinSize = 4;

// [n, channels, height, width] -> [n, classes]. Layers: down1, down2, middle,
// relu, up2, up1, avgpool, flatten, fc. downI leaves "skipI" before its pool,
// and upI takes it; convolutions are 3x3, with 8 and 16 channels.
LayerSpecs UnetTiny(const UnetOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_UNET_H_
