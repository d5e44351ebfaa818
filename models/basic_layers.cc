#include "models/basic_layers.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <memory>
#include <utility>

#include "models/module_layer.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

LayerSpec FunctionLayer(const std::string& name, const std::string& type,
                        std::function<at::Tensor(const at::Tensor&)> forward) {
  auto make = [name, forward](uint64_t) {
    return Layer{name, nullptr, forward};
  };
  return LayerSpec{name, type, make};
}

}  // namespace

LayerSpec LinearLayer(const std::string& name, int64_t in_features,
                      int64_t out_features, bool bias, InitialRule rule) {
  const auto options = nn::LinearOptions(in_features, out_features).bias(bias);
  return ModuleLayer<nn::LinearImpl>(
      name, "Linear",
      [options] { return std::make_shared<nn::LinearImpl>(options); },
      std::move(rule));
}

LayerSpec Conv2dLayer(const std::string& name, const Conv2dShape& shape,
                      InitialRule rule) {
  const auto options = nn::Conv2dOptions(shape.in_channels, shape.out_channels,
                                         shape.kernel_size)
                           .stride(shape.stride)
                           .padding(shape.padding)
                           .bias(shape.bias);
  return ModuleLayer<nn::Conv2dImpl>(
      name, "Conv2d",
      [options] { return std::make_shared<nn::Conv2dImpl>(options); },
      std::move(rule));
}

LayerSpec BatchNorm2dLayer(const std::string& name, int64_t channels) {
  return ModuleLayer<nn::BatchNorm2dImpl>(name, "BatchNorm2d", [channels] {
    return std::make_shared<nn::BatchNorm2dImpl>(channels);
  });
}

LayerSpec LayerNormLayer(const std::string& name, int64_t width) {
  return ModuleLayer<nn::LayerNormImpl>(name, "LayerNorm", [width] {
    return std::make_shared<nn::LayerNormImpl>(nn::LayerNormOptions({width}));
  });
}

LayerSpec ReluLayer(const std::string& name) {
  return FunctionLayer(name, "ReLU",
                       [](const at::Tensor& x) { return x.relu(); });
}

LayerSpec MaxPool2dLayer(const std::string& name, int64_t kernel_size,
                         int64_t stride, int64_t padding) {
  return FunctionLayer(name, "MaxPool2d", [=](const at::Tensor& x) {
    return at::max_pool2d(x, kernel_size, stride, padding);
  });
}

LayerSpec GlobalAvgPool2dLayer(const std::string& name) {
  return FunctionLayer(name, "AdaptiveAvgPool2d", [](const at::Tensor& x) {
    return at::adaptive_avg_pool2d(x, {1, 1});
  });
}

LayerSpec FlattenLayer(const std::string& name) {
  return FunctionLayer(name, "Flatten",
                       [](const at::Tensor& x) { return x.flatten(1); });
}

}  // namespace tandem
