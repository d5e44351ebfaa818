#include "models/resnet.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/layers/basic_layers.h"
#include "models/layers/resnet_block.h"

namespace tandem {
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
