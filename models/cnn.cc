#include "models/cnn.h"

#include "models/layers/basic_layers.h"

namespace tandem {
namespace {

constexpr int64_t kConv1 = 16;
constexpr int64_t kConv2 = 32;
constexpr int64_t kHidden = 128;

LayerSpec Conv3x3(const char* name, int64_t in_channels, int64_t out_channels) {
  Conv2dShape shape;
  shape.in_channels = in_channels;
  shape.out_channels = out_channels;
  shape.kernel_size = 3;
  shape.padding = 1;
  return Conv2dLayer(name, shape);
}

}  // namespace

LayerSpecs Cnn(const CnnOptions& options) {
  const int64_t features = kConv2 * (options.height / 4) * (options.width / 4);
  return {
      Conv3x3("conv1", options.channels, kConv1),
      ReluLayer("relu1"),
      MaxPool2dLayer("pool1", 2, 2),
      Conv3x3("conv2", kConv1, kConv2),
      ReluLayer("relu2"),
      MaxPool2dLayer("pool2", 2, 2),
      FlattenLayer("flatten"),
      LinearLayer("fc1", features, kHidden),
      ReluLayer("relu3"),
      LinearLayer("fc2", kHidden, options.classes),
  };
}

}  // namespace tandem
