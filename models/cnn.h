// Small convolutional networks: the trainer's default, and a U-Net.

#ifndef TANDEM_MODELS_CNN_H_
#define TANDEM_MODELS_CNN_H_

#include <cstdint>

#include "core/model/layer.h"

namespace tandem {

// The least height and width of an image: it is halved twice.
constexpr int64_t kCnnMinSize = 4;

struct CnnOptions {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
  int64_t classes = 10;
};

// What the trainer trains when nothing is said. On Fashion-MNIST's test images
// it comes to about 87 % after one epoch of SGD (batch 64, learning rate 0.05,
// momentum 0.9), and to 89 % when the learning rate decays along a cosine.
//
// [n, channels, height, width] -> [n, classes]. Layers:
//   conv1 3x3, 16 channels; relu1; pool1 2x2
//   conv2 3x3, 32 channels; relu2; pool2 2x2
//   flatten; fc1, 128 wide; relu3; fc2
// Requires a height and a width of at least kCnnMinSize.
LayerSpecs Cnn(const CnnOptions& options);

struct UnetOptions {
  int64_t channels = 1;  // of the images
  int64_t classes = 1;
};

// Height and width that the pools need.
constexpr int64_t kUnetMinSize = 4;

// A small classifier in the shape of a U-Net (Ronneberger et al., "U-Net:
// Convolutional Networks for Biomedical Image Segmentation", 2015): two skip
// connections, one inside the other, declared so that it can be cut anywhere.
//
// [n, channels, height, width] -> [n, classes]. Layers: down1, down2, middle,
// relu, up2, up1, avgpool, flatten, fc. downI leaves "skipI" before its pool,
// and upI takes it; convolutions are 3x3, with 8 and 16 channels.
LayerSpecs UnetTiny(const UnetOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_CNN_H_
