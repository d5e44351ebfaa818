// How long one step of AdamW takes on a GPU: tandem's kernels over a flat
// buffer against ATen's fused ones, from gradients of a scaled loss to clipped
// and stepped values, which is what a step of mixed precision does.
//
//   bazel run --config=cuda //tools/bench:gpu_optimizer_benchmark
//
// By the number of parameters; float32. tandem: one pass that finds the factor,
// one that steps. ATen: unscale with the finite check, norm, and the fused
// step, to which the clipping is handed as its gradients' scale. `bytes/s`
// counts what tandem's two passes read and write, so that it compares with the
// GPU's memory.

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <benchmark/benchmark.h>
#include <glog/logging.h>

#include <cstdint>

#include "core/cuda/optimizer_kernels.h"

namespace tandem {
namespace {

constexpr float kInverseScale = 1.0f / 1024;
constexpr float kMaxNorm = 1;

struct Buffers {
  explicit Buffers(int64_t length)
      : values(at::randn({length}, at::kCUDA)),
        grads(at::randn({length}, at::kCUDA)),
        average(at::zeros_like(values)),
        squares(at::zeros_like(values)) {}

  at::Tensor values, grads, average, squares;
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
  constexpr int64_t kBytes = 4 * (1 + 4 + 3);  // of a parameter
  state.SetBytesProcessed(state.iterations() * kSteps * state.range(0) *
                          kBytes);
}

AdamStep Options() {
  AdamStep adam;
  adam.learning_rate = 1e-6f;  // the values hardly move
  adam.rest_of_beta1 = 0.1f;
  adam.beta2 = 0.999f;
  adam.rest_of_beta2 = 0.001f;
  adam.eps = 1e-8f;
  adam.weight_decay = 0.01f;
  adam.decoupled = true;
  return adam;
}

void BM_Tandem(benchmark::State& state) {
  Buffers of(state.range(0));
  const at::Tensor scratch =
      at::empty({kFactorScratch}, of.values.options().dtype(at::kDouble));
  const at::Tensor bytes =
      at::zeros({sizeof(GradientFactor)}, of.values.options().dtype(at::kByte));
  auto* factor = static_cast<GradientFactor*>(bytes.data_ptr());
  const StepBuffers buffers{of.values.data_ptr<float>(),
                            of.grads.data_ptr<float>(),
                            of.average.data_ptr<float>(),
                            of.squares.data_ptr<float>(), state.range(0)};
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  Run(state, [&] {
    CHECK_EQ(FindGradientFactor(buffers.grads, buffers.length,
                                {kInverseScale, kMaxNorm},
                                scratch.data_ptr<double>(), factor, stream),
             cudaSuccess);
    CHECK_EQ(LaunchStep(buffers, Options(), factor, stream), cudaSuccess);
  });
}

void BM_Aten(benchmark::State& state) {
  Buffers of(state.range(0));
  at::Tensor found = at::zeros({}, of.values.options());
  const at::Tensor inverse = at::full({}, kInverseScale, of.values.options());
  const at::Tensor number = at::ones({}, of.values.options());
  Run(state, [&] {
    // In place: gradients shrink from step to step, which takes no longer.
    at::_amp_foreach_non_finite_check_and_unscale_({of.grads}, found, inverse);
    const at::Tensor norm = at::linalg_vector_norm(of.grads);
    const at::Tensor divisor = ((norm + 1e-6) / kMaxNorm).clamp_min_(1);
    at::_fused_adamw_({of.values}, {of.grads}, {of.average}, {of.squares}, {},
                      {number}, 1e-6, 0.9, 0.999, 0.01, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false, divisor, found);
  });
}

// A small model's, ResNet-18's, GPT-2 124M's.
BENCHMARK(BM_Tandem)->Arg(100000)->Arg(11700000)->Arg(124000000);
BENCHMARK(BM_Aten)->Arg(100000)->Arg(11700000)->Arg(124000000);

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
