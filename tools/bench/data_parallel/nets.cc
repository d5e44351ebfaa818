#include "tools/bench/data_parallel/nets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kClasses = 10;

torch::nn::Sequential Wide() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  return torch::nn::Sequential(Linear(1024, 1024), ReLU(), Linear(1024, 1024),
                               ReLU(), Linear(1024, kClasses));
}

torch::nn::Sequential Conv() {
  torch::nn::Sequential layers;
  int64_t channels = 3;
  for (const int64_t next : {32, 64, 64, 128}) {
    layers->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, next, 3).padding(1)));
    layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::MaxPool2d(2));
    channels = next;
  }
  layers->push_back(torch::nn::Flatten());
  layers->push_back(torch::nn::Linear(channels * 4, kClasses));
  return layers;
}

}  // namespace

BenchNet::BenchNet(std::string its) : kind(std::move(its)) { reset(); }

void BenchNet::reset() {
  layers = register_module("layers", kind == "wide" ? Wide() : Conv());
}

at::Tensor BenchNet::forward(const at::Tensor& x) { return layers->forward(x); }

std::vector<BenchProblem> BenchProblems() {
  return {{"wide", "3 linear layers of 1024, 2.1 M parameters", {1024}, 256},
          {"conv", "4 convolutions, 0.14 M parameters", {3, 32, 32}, 64}};
}

std::shared_ptr<BenchNet> NewBenchNet(const std::string& kind) {
  auto net = std::make_shared<BenchNet>(kind);
  const at::NoGradGuard no_grad;
  for (const auto& each : net->named_parameters()) {
    const double scale =
        each->dim() > 1 ? 1.4 / std::sqrt(each->numel() / each->size(0)) : 0;
    each->normal_(0, 1, GeneratorFor(kSeed, each.key())).mul_(scale);
  }
  return net;
}

BenchBatch BenchBatchOf(const BenchProblem& problem, int step) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  std::vector<int64_t> sizes = {problem.batch_size};
  sizes.insert(sizes.end(), problem.sample.begin(), problem.sample.end());
  return {
      at::randn(sizes, generator),
      at::randint(problem.classes, {problem.batch_size}, generator, at::kLong)};
}

}  // namespace tandem
