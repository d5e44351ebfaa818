#include "tests/parallel/strategy/example_job.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/fingerprint.h"
#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"

namespace tandem {
namespace {

// Values from a seed: modules' own initial values come from a generator that
// the ranks' threads share.
void Fill(torch::nn::Module& module, uint64_t seed) {
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(seed);
  for (at::Tensor& parameter : module.parameters()) {
    parameter.copy_(at::randn(parameter.sizes(), generator).mul(0.5));
  }
  module.to(TestDevice());
}

}  // namespace

Layer SeededLinear(const std::string& name, int64_t in, int64_t out,
                   uint64_t seed) {
  auto linear = std::make_shared<torch::nn::LinearImpl>(in, out);
  Fill(*linear, seed);
  return {name, linear,
          [linear](const at::Tensor& x) { return linear->forward(x); }};
}

Layer BatchNormLayer(const std::string& name, int64_t features) {
  auto norm = std::make_shared<torch::nn::BatchNorm1dImpl>(features);
  norm->to(TestDevice());
  return {name, norm, [norm](const at::Tensor& x) { return norm->forward(x); }};
}

Layer BranchLayer(const std::string& name, int64_t features, uint64_t seed,
                  std::function<bool()> used) {
  auto linear = std::make_shared<torch::nn::LinearImpl>(features, features);
  Fill(*linear, seed);
  return {name, linear, [linear, used](const at::Tensor& x) {
            return used() ? x.add(linear->forward(x)) : x;
          }};
}

LayerList PlainModel(uint64_t seed) {
  return {SeededLinear("fc1", kInputs, kHidden, seed),
          {"tanh", nullptr, [](const at::Tensor& x) { return x.tanh(); }},
          SeededLinear("fc2", kHidden, kClasses, seed + 1)};
}

Batch GlobalBatch(int step, int64_t size) {
  auto generator = at::detail::createCPUGenerator(1000 + step);
  Batch batch;
  batch.inputs = at::randn({size, kInputs}, generator);
  batch.targets = at::randint(kClasses, {size}, generator, at::kLong);
  batch.size = size;
  return batch;
}

Batch Share(const Batch& batch, const Communicator& world) {
  const int64_t size = batch.size / world.size();
  return {batch.inputs.narrow(0, world.rank() * size, size),
          batch.targets.narrow(0, world.rank() * size, size), size};
}

absl::StatusOr<std::unique_ptr<Strategy>> NewReplicated(
    LayerList layers, ReplicatedOptions options, Communicator& world) {
  options.device = TestDevice();
  return MakeReplicated(std::move(layers), CrossEntropy, options, world);
}

std::string Fingerprint(const Strategy& strategy) {
  return absl::StrCat(WeightsSha256(strategy.Parameters()), " ",
                      WeightsSha256(strategy.Buffers()), " ",
                      WeightsSha256(strategy.OptimizerState()));
}

NamedTensors DetachedCopies(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) {
    copies.emplace_back(name, tensor.detach().cpu().clone());
  }
  return copies;
}

at::Tensor Find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& each : tensors) {
    if (each.first == name) return each.second;
  }
  ADD_FAILURE() << name << " is not there";
  return {};
}

}  // namespace tandem
