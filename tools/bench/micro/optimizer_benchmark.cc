// How long one step of an optimizer takes: tandem's fused step over flat
// buffers against torch::optim's, which goes from tensor to tensor.
//
//   bazel run //tools/bench:optimizer_benchmark
//
// On the parameters of ResNet-18 (62 tensors, 11.7 million numbers) and of
// mlp_small (16 small tensors), float32, on the CPU, with one thread. The
// gradients are random and stay the same. `numbers/s` counts parameters.

#include <ATen/Parallel.h>
#include <ATen/ops/randn_like.h>
#include <benchmark/benchmark.h>
#include <glog/logging.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/tensors.h"
#include "core/model/layer_list.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"

namespace tandem {
namespace {

constexpr double kLearningRate = 1e-6;  // the values hardly move
constexpr double kMomentum = 0.9;

enum Model { kResnet18, kMlpSmall };

NamedTensors Parameters(Model model) {
  const LayerSpecs specs =
      model == kResnet18 ? Resnet18(ResnetOptions()) : MlpSmall(28 * 28, 10);
  return NamedParameters(MakeLayers(specs, 0));
}

void CountNumbers(const NamedTensors& parameters, benchmark::State& state) {
  int64_t numbers = 0;
  for (const auto& [name, tensor] : parameters) numbers += tensor.numel();
  state.counters["numbers/s"] =
      benchmark::Counter(static_cast<double>(numbers),
                         benchmark::Counter::kIsIterationInvariantRate);
}

template <typename Make>
void RunFused(benchmark::State& state, Model model, Make make) {
  const NamedTensors parameters = Parameters(model);
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  for (const auto& buffer : buffers) {
    buffer->grads().copy_(at::randn_like(buffer->grads()));
    for (size_t i = 0; i < buffer->slots().size(); ++i) {
      buffer->set_has_gradient(i, true);
    }
  }
  auto optimizer = make(buffers);
  CHECK(optimizer.ok()) << optimizer.status();
  (*optimizer)->Step(kLearningRate);  // the first makes the state
  for (auto iteration : state) (*optimizer)->Step(kLearningRate);
  CountNumbers(parameters, state);
}

template <typename Optimizer, typename Options>
void RunTorch(benchmark::State& state, Model model, const Options& options) {
  const NamedTensors parameters = Parameters(model);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) {
    tensors.push_back(tensor);
    tensors.back().mutable_grad() = at::randn_like(tensor.detach());
  }
  Optimizer optimizer(tensors, options);
  optimizer.step();
  for (auto iteration : state) optimizer.step();
  CountNumbers(parameters, state);
}

void FusedSgdMomentum(benchmark::State& state, Model model) {
  SgdOptions options;
  options.momentum = kMomentum;
  RunFused(state, model, [&](const FlatBuffers& buffers) {
    return MakeOptimizer(options, buffers);
  });
}

void TorchSgdMomentum(benchmark::State& state, Model model) {
  RunTorch<torch::optim::SGD>(
      state, model,
      torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
}

void FusedAdamW(benchmark::State& state, Model model) {
  RunFused(state, model, [](const FlatBuffers& buffers) {
    return MakeOptimizer(AdamWOptions(), buffers);
  });
}

void TorchAdamW(benchmark::State& state, Model model) {
  RunTorch<torch::optim::AdamW>(state, model,
                                torch::optim::AdamWOptions(kLearningRate));
}

#define TANDEM_BENCHMARK_ON_MODELS(function)        \
  BENCHMARK_CAPTURE(function, resnet18, kResnet18)  \
      ->Unit(benchmark::kMicrosecond);              \
  BENCHMARK_CAPTURE(function, mlp_small, kMlpSmall) \
      ->Unit(benchmark::kMicrosecond)

TANDEM_BENCHMARK_ON_MODELS(FusedSgdMomentum);
TANDEM_BENCHMARK_ON_MODELS(TorchSgdMomentum);
TANDEM_BENCHMARK_ON_MODELS(FusedAdamW);
TANDEM_BENCHMARK_ON_MODELS(TorchAdamW);

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  at::set_num_threads(1);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
