#include "models/resnet.h"

#include <torch/nn/modules/conv.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/functions/convolution_function.h"
#include "models/layers/basic_layers.h"
#include "models/layers/batch_norm_2d.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

struct ConvShape {
  int64_t out_channels;
  int64_t kernel_size;
  int64_t stride;
};

// A convolution and the BatchNorm behind it. They are children of the block
// itself, as torchvision names them.
struct ConvNorm {
  ConvNorm(nn::Module& owner, const std::string& conv_name,
           const std::string& norm_name, int64_t in_channels,
           const ConvShape& shape) {
    stride = shape.stride;
    padding = shape.kernel_size / 2;
    const auto options =
        nn::Conv2dOptions(in_channels, shape.out_channels, shape.kernel_size)
            .stride(stride)
            .padding(padding)
            .bias(false);
    conv = owner.register_module(conv_name,
                                 std::make_shared<nn::Conv2dImpl>(options));
    norm = owner.register_module(
        norm_name, std::make_shared<BatchNorm2d>(shape.out_channels));
  }

  at::Tensor operator()(const at::Tensor& x) const {
    return norm->forward(ConvolutionFunction(x, conv->weight, stride, padding));
  }

  int64_t stride;
  int64_t padding;
  std::shared_ptr<nn::Conv2dImpl> conv;
  std::shared_ptr<BatchNorm2d> norm;
};

class ResidualBlock : public nn::Module {
 public:
  ResidualBlock(int64_t in_channels, const std::vector<ConvShape>& convs) {
    int64_t channels = in_channels;
    int64_t stride = 1;
    for (size_t i = 0; i < convs.size(); ++i) {
      branch_.emplace_back(*this, absl::StrCat("conv", i + 1),
                           absl::StrCat("bn", i + 1), channels, convs[i]);
      channels = convs[i].out_channels;
      stride *= convs[i].stride;
    }
    if (stride == 1 && channels == in_channels) return;
    const auto downsample =
        register_module("downsample", std::make_shared<nn::Module>());
    shortcut_.emplace_back(*downsample, "0", "1", in_channels,
                           ConvShape{channels, 1, stride});
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = branch_[0](input);
    for (size_t i = 1; i < branch_.size(); ++i) x = branch_[i](x.relu_());
    x += shortcut_.empty() ? input : shortcut_[0](input);
    return x.relu_();
  }

 private:
  std::vector<ConvNorm> branch_;
  std::vector<ConvNorm> shortcut_;  // empty: the input itself
};

LayerSpec BlockLayer(const std::string& name, const std::string& type,
                     int64_t in_channels, const std::vector<ConvShape>& convs) {
  return ModuleLayer<ResidualBlock>(
      name, type,
      [=] { return std::make_shared<ResidualBlock>(in_channels, convs); },
      ResnetInitialValues);
}

}  // namespace

void ResnetInitialValues(const InitialParameter& parameter) {
  const at::Tensor& values = parameter.values;
  if (dynamic_cast<const nn::Conv2dImpl*>(&parameter.owner) == nullptr) {
    PytorchDefault(parameter);
    return;
  }
  const int64_t fan_out = values.size(0) * values.size(2) * values.size(3);
  values.normal_(0, std::sqrt(2.0 / fan_out), parameter.generator);
}

LayerSpec BasicBlock(const std::string& name, int64_t in_channels,
                     int64_t channels, int64_t stride) {
  return BlockLayer(name, "BasicBlock", in_channels,
                    {{channels, 3, stride}, {channels, 3, 1}});
}

LayerSpec Bottleneck(const std::string& name, int64_t in_channels,
                     int64_t channels, int64_t stride) {
  return BlockLayer(name, "Bottleneck", in_channels,
                    {{channels, 1, 1},
                     {channels, 3, stride},
                     {channels * kBottleneckExpansion, 1, 1}});
}

namespace {

struct Architecture {
  LayerSpec (*block)(const std::string& name, int64_t in_channels,
                     int64_t channels, int64_t stride);
  int64_t expansion;
  std::array<int, 4> blocks;  // in layer1 ... layer4
};

LayerSpecs Stem(int64_t channels, int64_t width) {
  Conv2dShape conv;
  conv.in_channels = channels;
  conv.out_channels = width;
  conv.kernel_size = 7;
  conv.stride = 2;
  conv.padding = 3;
  conv.bias = false;
  conv.channels_last = true;
  return {
      Conv2dLayer("conv1", conv, ResnetInitialValues),
      BatchNorm2dLayer("bn1", width),
      ReluLayer("relu"),
      MaxPool2dLayer("maxpool", 3, 2, 1),
  };
}

LayerSpecs Resnet(const Architecture& architecture,
                  const ResnetOptions& options) {
  LayerSpecs specs = Stem(options.channels, options.width);
  int64_t in_channels = options.width;
  int64_t channels = options.width;
  for (int group = 0; group < 4; ++group, channels *= 2) {
    for (int i = 0; i < architecture.blocks[group]; ++i) {
      const int64_t stride = group > 0 && i == 0 ? 2 : 1;
      specs.push_back(
          architecture.block(absl::StrCat("layer", group + 1, ".", i),
                             in_channels, channels, stride));
      in_channels = channels * architecture.expansion;
    }
  }
  specs.push_back(GlobalAvgPool2dLayer("avgpool"));
  specs.push_back(FlattenLayer("flatten"));
  specs.push_back(LinearLayer("fc", in_channels, options.classes));
  return specs;
}

}  // namespace

LayerSpecs Resnet18(const ResnetOptions& options) {
  return Resnet({BasicBlock, kBasicBlockExpansion, {2, 2, 2, 2}}, options);
}

LayerSpecs Resnet34(const ResnetOptions& options) {
  return Resnet({BasicBlock, kBasicBlockExpansion, {3, 4, 6, 3}}, options);
}

LayerSpecs Resnet50(const ResnetOptions& options) {
  return Resnet({Bottleneck, kBottleneckExpansion, {3, 4, 6, 3}}, options);
}

}  // namespace tandem
