#include "models/mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "models/layers/basic_layers.h"
#include "models/layers/basic_modules.h"
#include "models/layers/dropout.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

class Block : public torch::nn::Module {
 public:
  Block(const std::string& name, int64_t width, double dropout)
      : fc1_(
            register_module("fc1", std::make_shared<Linear>(width, 2 * width))),
        dropout_(register_module(
            "dropout", std::make_shared<Dropout>(name + ".dropout", dropout))),
        fc2_(register_module("fc2",
                             std::make_shared<Linear>(2 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) const {
    return x + fc2_->forward(dropout_->forward(fc1_->forward(x).relu()));
  }

 private:
  std::shared_ptr<Linear> fc1_;
  std::shared_ptr<Dropout> dropout_;
  std::shared_ptr<Linear> fc2_;
};

}  // namespace

LayerSpec MlpBlock(const std::string& name, int64_t width, double dropout) {
  return ModuleLayer<Block>(name, "MlpBlock", [=] {
    return std::make_shared<Block>(name, width, dropout);
  });
}

LayerSpecs MlpDropout(const MlpDropoutOptions& options) {
  LayerSpecs specs = {FlattenLayer("flatten"),
                      LinearLayer("fc_in", options.inputs, options.width)};
  for (int64_t i = 1; i <= options.blocks; ++i) {
    specs.push_back(
        MlpBlock(absl::StrCat("block", i), options.width, options.dropout));
  }
  specs.push_back(LinearLayer("fc_out", options.width, options.classes));
  return specs;
}

LayerSpecs Mlp(const MlpOptions& options) {
  LayerSpecs specs = {FlattenLayer("flatten")};
  int64_t features = options.inputs;
  for (int64_t i = 1; i < options.linear_layers; ++i) {
    specs.push_back(
        LinearLayer(absl::StrCat("fc", i), features, options.width));
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
    features = options.width;
  }
  specs.push_back(LinearLayer(absl::StrCat("fc", options.linear_layers),
                              features, options.classes));
  return specs;
}

LayerSpecs MlpSmall(int64_t inputs, int64_t classes) {
  return Mlp({inputs, /*linear_layers=*/8, /*width=*/64, classes});
}

LayerSpecs MlpWide(int64_t inputs, int64_t classes) {
  return Mlp({inputs, /*linear_layers=*/3, /*width=*/2048, classes});
}

LayerSpecs MlpDeep(int64_t inputs, int64_t classes) {
  return Mlp({inputs, /*linear_layers=*/16, /*width=*/512, classes});
}

}  // namespace tandem
