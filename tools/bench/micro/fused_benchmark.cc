// Fused kernels (core/fused) beside what LibTorch needs for the same: one
// thread, matrices of a GPT's activations.
//
//   bazel run //tools/bench:fused_benchmark

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <cstdint>

#include "core/fused/bias_gelu.h"
#include "core/fused/cross_entropy.h"
#include "core/fused/dropout_add.h"
#include "core/fused/layer_norm.h"

namespace tandem {
namespace {

constexpr int64_t kRows = 1024;
constexpr int64_t kColumns = 512;

struct Operands {
  at::Tensor x = at::randn({kRows, kColumns});
  at::Tensor dy = at::randn({kRows, kColumns});
  at::Tensor weight = at::ones({kColumns});
  at::Tensor bias = at::randn({kColumns});
  at::Tensor targets = at::randint(kColumns, {kRows}, at::kLong);
};

// Elements a second.
template <typename Run>
void Measure(benchmark::State& state, const Run& run) {
  at::set_num_threads(1);
  const Operands operands;
  for (auto _ : state) run(operands);
  state.SetItemsProcessed(state.iterations() * kRows * kColumns);
}

const char* Approximate(GeluForm form) {
  return form == GeluForm::kTanh ? "tanh" : "none";
}

template <GeluForm kForm>
void FusedBiasGelu(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    benchmark::DoNotOptimize(BiasGelu(o.x, o.bias, kForm));
  });
}

template <GeluForm kForm>
void LibTorchBiasGelu(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    benchmark::DoNotOptimize(at::gelu(o.x + o.bias, Approximate(kForm)));
  });
}

template <GeluForm kForm>
void FusedBiasGeluBackward(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    benchmark::DoNotOptimize(BiasGeluBackward(o.dy, o.x, o.bias, kForm));
  });
}

// The sum is there from forward.
template <GeluForm kForm>
void LibTorchBiasGeluBackward(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    const at::Tensor dx = at::gelu_backward(o.dy, o.x, Approximate(kForm));
    benchmark::DoNotOptimize(dx.sum(0));
  });
}

void FusedNorm(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    benchmark::DoNotOptimize(FusedLayerNorm(o.x, o.weight, o.bias, 1e-5));
  });
}

void LibTorchNorm(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    benchmark::DoNotOptimize(
        at::native_layer_norm(o.x, {kColumns}, o.weight, o.bias, 1e-5));
  });
}

void FusedNormBackward(benchmark::State& state) {
  const Operands o;
  const auto [y, mean, rstd] = FusedLayerNorm(o.x, o.weight, o.bias, 1e-5);
  Measure(state, [&, mean = mean, rstd = rstd](const Operands&) {
    benchmark::DoNotOptimize(
        FusedLayerNormBackward(o.dy, o.x, mean, rstd, o.weight, true, true));
  });
}

void LibTorchNormBackward(benchmark::State& state) {
  const Operands o;
  const auto [y, mean, rstd] =
      at::native_layer_norm(o.x, {kColumns}, o.weight, o.bias, 1e-5);
  Measure(state, [&, mean = mean, rstd = rstd](const Operands&) {
    benchmark::DoNotOptimize(
        at::native_layer_norm_backward(o.dy, o.x, {kColumns}, mean, rstd,
                                       o.weight, o.bias, {true, true, true}));
  });
}

void FusedLoss(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    const auto [losses, log_sums, right] =
        FusedCrossEntropy(o.x, o.targets, {});
    benchmark::DoNotOptimize(
        FusedCrossEntropyBackward(losses, o.x, o.targets, log_sums, {}));
    benchmark::DoNotOptimize(right.sum());
  });
}

void LibTorchLoss(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    constexpr int64_t kNone = -100;
    const at::Tensor y = at::log_softmax(o.x, 1);
    const auto [losses, weight] = at::nll_loss_forward(
        y, o.targets, /*weight=*/{}, at::Reduction::None, kNone);
    const at::Tensor dy =
        at::nll_loss_backward(losses, y, o.targets, /*weight=*/{},
                              at::Reduction::None, kNone, weight);
    benchmark::DoNotOptimize(
        at::_log_softmax_backward_data(dy, y, 1, at::kFloat));
    benchmark::DoNotOptimize(y.argmax(1).eq(o.targets).sum());
  });
}

// Forward and backward.
void FusedDropoutAdd(benchmark::State& state) {
  const DropoutDraws draws = {1, 2, 0.1};
  Measure(state, [&](const Operands& o) {
    benchmark::DoNotOptimize(DropoutAdd(o.x, o.dy, draws));
    benchmark::DoNotOptimize(DropoutAdd(o.dy, {}, draws));
  });
}

// Its mask depends on what was drawn before.
void LibTorchDropoutAdd(benchmark::State& state) {
  Measure(state, [](const Operands& o) {
    const at::Tensor mask = at::dropout(at::ones_like(o.x), 0.1, true);
    benchmark::DoNotOptimize(o.x * mask + o.dy);
    benchmark::DoNotOptimize(o.dy * mask);
  });
}

BENCHMARK(FusedBiasGelu<GeluForm::kTanh>);
BENCHMARK(LibTorchBiasGelu<GeluForm::kTanh>);
BENCHMARK(FusedBiasGelu<GeluForm::kNone>);
BENCHMARK(LibTorchBiasGelu<GeluForm::kNone>);
BENCHMARK(FusedBiasGeluBackward<GeluForm::kTanh>);
BENCHMARK(LibTorchBiasGeluBackward<GeluForm::kTanh>);
BENCHMARK(FusedBiasGeluBackward<GeluForm::kNone>);
BENCHMARK(LibTorchBiasGeluBackward<GeluForm::kNone>);
BENCHMARK(FusedNorm);
BENCHMARK(LibTorchNorm);
BENCHMARK(FusedNormBackward);
BENCHMARK(LibTorchNormBackward);
BENCHMARK(FusedLoss);
BENCHMARK(LibTorchLoss);
BENCHMARK(FusedDropoutAdd);
BENCHMARK(LibTorchDropoutAdd);

}  // namespace
}  // namespace tandem

BENCHMARK_MAIN();
