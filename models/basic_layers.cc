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

#include "models/linear_function.h"
#include "models/module_layer.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

// The same numbers up to rounding, by other ways.
class FastLinear : public nn::LinearImpl {
 public:
  using nn::LinearImpl::LinearImpl;

  at::Tensor forward(const at::Tensor& x) {
    return LinearFunction(x, weight, bias, WeightLayout::kOutIn);
  }
};

at::Tensor ToChannelsLast(const at::Tensor& images) {
  return images.contiguous(at::MemoryFormat::ChannelsLast);
}

class ChannelsLastConv2d : public nn::Conv2dImpl {
 public:
  using nn::Conv2dImpl::Conv2dImpl;

  at::Tensor forward(const at::Tensor& x) {
    return nn::Conv2dImpl::forward(ToChannelsLast(x));
  }
};

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
  return ModuleLayer<FastLinear>(
      name, "Linear",
      [options] { return std::make_shared<FastLinear>(options); },
      std::move(rule));
}

LayerSpec Conv2dLayer(const std::string& name, const Conv2dShape& shape,
                      InitialRule rule) {
  const auto options = nn::Conv2dOptions(shape.in_channels, shape.out_channels,
                                         shape.kernel_size)
                           .stride(shape.stride)
                           .padding(shape.padding)
                           .bias(shape.bias);
  if (shape.channels_last) {
    return ModuleLayer<ChannelsLastConv2d>(
        name, "Conv2d",
        [options] { return std::make_shared<ChannelsLastConv2d>(options); },
        std::move(rule));
  }
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
    const at::Tensor y = at::max_pool2d(x, kernel_size, stride, padding);
    if (y.is_contiguous()) return y;
    // LibTorch's backward would bring all that it takes into the layout of the
    // gradient, and go the slow way for contiguous ones.
    if (y.requires_grad()) y.register_hook(ToChannelsLast);
    return y.contiguous();
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
