// For tests: ResNet-18 of torch::nn's own modules, which compute what
// torchvision's does bit for bit. (models/resnet.h has convolutions of its own,
// which round otherwise.)

#ifndef TANDEM_TESTS_PARALLEL_DDP_PLAIN_RESNET_H_
#define TANDEM_TESTS_PARALLEL_DDP_PLAIN_RESNET_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tandem {

// Names and shapes are torchvision's. [n, 3, height, width] -> [n, classes]
class PlainResnet18 : public torch::nn::Module {
 public:
  explicit PlainResnet18(int64_t classes);
  at::Tensor forward(at::Tensor x);

 private:
  class Block;

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::Linear fc_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PLAIN_RESNET_H_
