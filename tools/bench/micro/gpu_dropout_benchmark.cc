// How long dropout with its residual takes on a GPU: tandem's kernel, which
// draws the mask anew in backward, against ATen's dropout, which keeps it, and
// an addition.
//
//   bazel run --config=cuda //tools/bench:gpu_dropout_benchmark
//
// By the number of elements, of a step's forward and backward; bf16. `bytes/s`
// counts what tandem's two passes read and write, so that it compares with the
// GPU's memory.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>
#include <glog/logging.h>

#include <cstdint>

#include "core/fused/dropout_add.h"

namespace tandem {
namespace {

constexpr double kProbability = 0.1;
constexpr int64_t kWidth = 768;

struct Tensors {
  explicit Tensors(int64_t elements)
      : x(at::randn({elements / kWidth, kWidth},
                    at::TensorOptions(at::kCUDA).dtype(at::kBFloat16))),
        residual(at::randn_like(x)),
        dy(at::randn_like(x)) {}

  at::Tensor x, residual, dy;
};

void WaitForGpu() { CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess); }

// The host is ahead of the GPU within a batch of steps, as in training.
template <typename Step>
void Run(benchmark::State& state, Step step) {
  constexpr int kSteps = 50;
  step();  // makes what is made once
  WaitForGpu();
  for (auto iteration : state) {
    for (int i = 0; i < kSteps; ++i) step();
    WaitForGpu();
  }
  constexpr int64_t kBytes = 2 * (3 + 2);  // of an element
  state.SetBytesProcessed(state.iterations() * kSteps * state.range(0) *
                          kBytes);
}

void BM_Tandem(benchmark::State& state) {
  const Tensors of(state.range(0));
  const DropoutDraws draws = {7, 0, kProbability};
  Run(state, [&] {
    benchmark::DoNotOptimize(DropoutAdd(of.x, of.residual, draws));
    benchmark::DoNotOptimize(DropoutAdd(of.dy, {}, draws));
  });
}

void BM_Aten(benchmark::State& state) {
  const Tensors of(state.range(0));
  Run(state, [&] {
    const auto [dropped, mask] =
        at::native_dropout(of.x, kProbability, /*train=*/true);
    benchmark::DoNotOptimize(dropped.add(of.residual));
    benchmark::DoNotOptimize(
        at::native_dropout_backward(of.dy, mask, 1 / (1 - kProbability)));
  });
}

// GPT-2 124M's rows of a microbatch: 1, 8 and 32 samples of 1,024 tokens.
BENCHMARK(BM_Tandem)->Arg(786432)->Arg(6291456)->Arg(25165824);
BENCHMARK(BM_Aten)->Arg(786432)->Arg(6291456)->Arg(25165824);

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    LOG(ERROR) << "there is no GPU to measure (bazel run //tools:doctor)";
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
