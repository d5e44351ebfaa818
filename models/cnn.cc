#include "models/cnn.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <glog/logging.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "models/functions/conv2d_function.h"
#include "models/functions/max_pool_function.h"
#include "models/layers/basic_layers.h"
#include "models/layers/initialize.h"

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

namespace {

namespace nn = torch::nn;

constexpr int64_t kWidth = 8;  // channels at the full size; then twice that

// A 3x3 convolution, as the child "conv", and ReLU.
class ConvRelu : public nn::Module {
 public:
  ConvRelu(int64_t in_channels, int64_t out_channels)
      : conv_(register_module(
            "conv",
            std::make_shared<nn::Conv2dImpl>(
                nn::Conv2dOptions(in_channels, out_channels, 3).padding(1)))) {}

  at::Tensor forward(const at::Tensor& x) const {
    return Conv2dFunction(x, conv_->weight, conv_->bias, /*stride=*/1,
                          /*padding=*/1)
        .relu();
  }

 private:
  std::shared_ptr<nn::Conv2dImpl> conv_;
};

using SkipForward = at::Tensor (*)(const ConvRelu& convolution,
                                   const std::string& skip, const at::Tensor& x,
                                   Skips& skips);

// Half as high and wide; leaves what was before the pool.
at::Tensor Down(const ConvRelu& convolution, const std::string& skip,
                const at::Tensor& x, Skips& skips) {
  const at::Tensor y = convolution.forward(x);
  skips[skip] = y;
  return MaxPool2dFunction(y, /*kernel_size=*/2, /*stride=*/2, /*padding=*/0);
}

// Makes x as high and wide as the skip, which comes in as further channels.
at::Tensor Up(const ConvRelu& convolution, const std::string& skip,
              const at::Tensor& x, Skips& skips) {
  const auto found = skips.extract(skip);
  CHECK(!found.empty()) << skip << " has not been left";
  const at::Tensor& taken = found.mapped();
  const at::Tensor larger =
      at::upsample_nearest2d(x, {taken.size(2), taken.size(3)});
  return convolution.forward(at::cat({larger, taken}, /*dim=*/1));
}

struct BlockShape {
  int64_t in_channels;
  int64_t out_channels;
};

std::function<Layer(uint64_t)> LayerMaker(const std::string& name,
                                          const BlockShape& shape,
                                          const std::string& skip,
                                          SkipForward forward) {
  return [=](uint64_t seed) {
    const auto module =
        std::make_shared<ConvRelu>(shape.in_channels, shape.out_channels);
    Initialize(*module, name, seed);
    Layer layer;
    layer.name = name;
    layer.module = module;
    layer.forward_with_skips = [=](const at::Tensor& x, Skips& skips) {
      return forward(*module, skip, x, skips);
    };
    return layer;
  };
}

LayerSpec DownLayer(const std::string& name, const BlockShape& shape,
                    const std::string& skip) {
  LayerSpec spec;
  spec.name = name;
  spec.type = "UnetDown";
  spec.make = LayerMaker(name, shape, skip, Down);
  spec.links.stash = {skip};
  return spec;
}

LayerSpec UpLayer(const std::string& name, const BlockShape& shape,
                  const std::string& skip) {
  LayerSpec spec;
  spec.name = name;
  spec.type = "UnetUp";
  spec.make = LayerMaker(name, shape, skip, Up);
  spec.links.pop = {skip};
  return spec;
}

LayerSpec Middle() {
  Conv2dShape shape;
  shape.in_channels = 2 * kWidth;
  shape.out_channels = 2 * kWidth;
  shape.kernel_size = 3;
  shape.padding = 1;
  return Conv2dLayer("middle", shape);
}

}  // namespace

LayerSpecs UnetTiny(const UnetOptions& options) {
  return {
      DownLayer("down1", {options.channels, kWidth}, "skip1"),
      DownLayer("down2", {kWidth, 2 * kWidth}, "skip2"),
      Middle(),
      ReluLayer("relu"),
      UpLayer("up2", {4 * kWidth, kWidth}, "skip2"),
      UpLayer("up1", {2 * kWidth, kWidth}, "skip1"),
      GlobalAvgPool2dLayer("avgpool"),
      FlattenLayer("flatten"),
      LinearLayer("fc", kWidth, options.classes),
  };
}

}  // namespace tandem
