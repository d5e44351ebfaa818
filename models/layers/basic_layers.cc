#include "models/layers/basic_layers.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/modules/conv.h>

#include <functional>
#include <memory>
#include <utility>

#include "core/autotune/kernel_choices.h"
#include "core/model/axis/tensor_parallel.h"
#include "models/functions/conv2d_function.h"
#include "models/functions/max_pool_function.h"
#include "models/layers/basic_modules.h"
#include "models/layers/batch_norm_2d.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

at::Tensor ToChannelsLast(const at::Tensor& images) {
  return images.contiguous(at::MemoryFormat::ChannelsLast);
}

// In a TensorParallelScope all ranks compute it alike: images have no tokens
// that could be divided.
class Conv2d : public nn::Conv2dImpl, public TensorParallelModule {
 public:
  Conv2d(const nn::Conv2dOptions& options, const Conv2dShape& shape)
      : nn::Conv2dImpl(options), shape_(shape) {}

  at::Tensor forward(const at::Tensor& x) {
    return Conv2dFunction(shape_.channels_last ? ToChannelsLast(x) : x, weight,
                          bias, shape_.stride, shape_.padding);
  }

  TraitsByName Divide(const TensorParallel&, const std::string&) override {
    return {};
  }

 private:
  Conv2dShape shape_;
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
  return ModuleLayer<Linear>(
      name, "Linear", [options] { return std::make_shared<Linear>(options); },
      std::move(rule));
}

LayerSpec Conv2dLayer(const std::string& name, const Conv2dShape& shape,
                      InitialRule rule) {
  const auto options = nn::Conv2dOptions(shape.in_channels, shape.out_channels,
                                         shape.kernel_size)
                           .stride(shape.stride)
                           .padding(shape.padding)
                           .bias(shape.bias);
  return ModuleLayer<Conv2d>(
      name, "Conv2d",
      [options, shape] { return std::make_shared<Conv2d>(options, shape); },
      std::move(rule));
}

LayerSpec BatchNorm2dLayer(const std::string& name, int64_t channels) {
  return ModuleLayer<BatchNorm2d>(name, "BatchNorm2d", [channels] {
    return std::make_shared<BatchNorm2d>(channels);
  });
}

LayerSpec LayerNormLayer(const std::string& name, int64_t width, double eps) {
  return ModuleLayer<LayerNorm>(name, "LayerNorm", [width, eps] {
    return std::make_shared<LayerNorm>(width, eps);
  });
}

LayerSpec ReluLayer(const std::string& name) {
  return FunctionLayer(name, "ReLU",
                       [](const at::Tensor& x) { return x.relu(); });
}

LayerSpec MaxPool2dLayer(const std::string& name, int64_t kernel_size,
                         int64_t stride, int64_t padding) {
  return FunctionLayer(name, "MaxPool2d", [=](const at::Tensor& x) {
    const at::Tensor y = MaxPool2dFunction(x, kernel_size, stride, padding);
    if (y.is_contiguous() || KernelChoices::OfProcess().measures()) return y;
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
