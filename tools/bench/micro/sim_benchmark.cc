// What a simulated device costs beside the CPU, whose kernels it runs: an
// operator, and a training step (bazel run //tools/bench:sim_benchmark).

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <cstdint>

#include "core/sim/sim.h"

namespace tandem {
namespace {

torch::Device Device(const benchmark::State& state) {
  return state.range(0) == 0 ? torch::Device(torch::kCPU) : SimDevice(0);
}

void AddOf16(benchmark::State& state) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::ones({16}, Device(state));
  for (auto _ : state) benchmark::DoNotOptimize(a + a);
}

void AddInPlaceOf16(benchmark::State& state) {
  const torch::NoGradGuard no_grad;
  torch::Tensor a = torch::ones({16}, Device(state));
  const torch::Tensor b = torch::ones({16}, Device(state));
  for (auto _ : state) a.add_(b);
}

void View(benchmark::State& state) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::ones({4, 4}, Device(state));
  for (auto _ : state) benchmark::DoNotOptimize(a.view({16}));
}

void ProductOf256(benchmark::State& state) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::ones({256, 256}, Device(state));
  for (auto _ : state) benchmark::DoNotOptimize(torch::mm(a, a));
}

// Eight linear layers of 64, as in mlp_small of //tools:bench.
void SmallStep(benchmark::State& state) {
  torch::nn::Sequential layers;
  for (int i = 0; i < 8; ++i) {
    layers->push_back(torch::nn::Linear(64, 64));
    layers->push_back(torch::nn::ReLU());
  }
  layers->to(Device(state));
  torch::optim::SGD optimizer(layers->parameters(), 0.01);
  const torch::Tensor x = torch::randn({32, 64}).to(Device(state));
  for (auto _ : state) {
    optimizer.zero_grad();
    layers->forward(x).sum().backward();
    optimizer.step();
  }
}

#define TANDEM_ON_BOTH(name) \
  BENCHMARK(name)->ArgName("sim")->Arg(0)->Arg(1)->UseRealTime()

TANDEM_ON_BOTH(AddOf16);
TANDEM_ON_BOTH(AddInPlaceOf16);
TANDEM_ON_BOTH(View);
TANDEM_ON_BOTH(ProductOf256);
TANDEM_ON_BOTH(SmallStep);

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  const absl::Status enabled = tandem::EnableSim();
  if (!enabled.ok()) {
    fprintf(stderr, "%s\n", enabled.ToString().c_str());
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
