#include "tests/parallel/ddp/plain_resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

torch::nn::Conv2d Convolution(int64_t in, int64_t out, int64_t kernel,
                              int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .bias(false));
}

// Gives children names with numbers, as torch::nn::Sequential does.
struct Numbered : torch::nn::Module {
  template <typename M>
  M Add(M module) {
    return register_module(absl::StrCat(children().size()), module);
  }
};

}  // namespace

class PlainResnet18::Block : public torch::nn::Module {
 public:
  Block(int64_t in, int64_t out, int64_t stride)
      : conv1_(register_module("conv1", Convolution(in, out, 3, stride))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", Convolution(out, out, 3, 1))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(out))) {
    if (stride == 1) return;
    auto downsample =
        register_module("downsample", std::make_shared<Numbered>());
    down_ = downsample->Add(Convolution(in, out, 1, stride));
    down_bn_ = downsample->Add(torch::nn::BatchNorm2d(out));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = bn2_(conv2_(bn1_(conv1_(x)).relu()));
    return y.add(down_ ? down_bn_(down_(x)) : x).relu();
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Conv2d down_{nullptr};
  torch::nn::BatchNorm2d down_bn_{nullptr};
};

PlainResnet18::PlainResnet18(int64_t classes)
    : conv1_(register_module("conv1", Convolution(3, 64, 7, 2))),
      bn1_(register_module("bn1", torch::nn::BatchNorm2d(64))),
      fc_(nullptr) {
  int64_t in = 64;
  for (int stage = 1; stage <= 4; ++stage) {
    auto layer = register_module(absl::StrCat("layer", stage),
                                 std::make_shared<Numbered>());
    const int64_t out = int64_t{32} << stage;
    for (int block = 0; block < 2; ++block) {
      const int64_t stride = block == 0 && stage > 1 ? 2 : 1;
      blocks_.push_back(layer->Add(std::make_shared<Block>(in, out, stride)));
      in = out;
    }
  }
  fc_ = register_module("fc", torch::nn::Linear(in, classes));
}

at::Tensor PlainResnet18::forward(at::Tensor x) {
  x = at::max_pool2d(bn1_(conv1_(x)).relu(), 3, 2, 1);
  for (const auto& block : blocks_) x = block->forward(x);
  return fc_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace tandem
