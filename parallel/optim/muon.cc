#include "parallel/optim/muon.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/device/host_memory.h"
#include "core/device/memory_category.h"
#include "core/fused/one_dnn_matmul.h"

namespace tandem {
namespace {

constexpr int64_t kMostIterations = 99;  // as PyTorch

// What a step changes, in place.
struct Stepped {
  at::Tensor values;
  at::Tensor grads;
  at::Tensor momentum;
};

class Muon : public OptimizerRule {
 public:
  explicit Muon(const MuonOptions& options)
      : OptimizerRule({"Muon",
                       {kMuonState},
                       /*counts_steps=*/false,
                       /*steps_matrices=*/true}),
        options_(options) {}

  void Step(const OptimizerRange& range, double learning_rate) const override {
    const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
    const Stepped live = {range.values, range.grads, range.state[0]};
    if (!range.found_inf.has_value()) {
      Apply(live, range.divisor, learning_rate);
      return;
    }
    // The device knows whether it is a step: it picks the one or the other.
    const Stepped next = {live.values.clone(), live.grads.clone(),
                          live.momentum.clone()};
    Apply(next, range.divisor, learning_rate);
    const at::Tensor is_none = range.found_inf->to(at::kBool);
    for (const auto part :
         {&Stepped::values, &Stepped::grads, &Stepped::momentum}) {
      const at::Tensor& kept = live.*part;
      kept.copy_(at::where(is_none, kept, next.*part));
    }
  }

 private:
  void Apply(const Stepped& stepped, const std::optional<at::Tensor>& divisor,
             double learning_rate) const {
    const auto& [values, grads, momentum] = stepped;
    if (divisor.has_value()) grads.div_(*divisor);
    momentum.lerp_(grads, 1 - options_.momentum);
    const at::Tensor update = NewtonSchulz(
        options_.nesterov ? grads.lerp(momentum, options_.momentum) : momentum,
        options_);
    const double rate = learning_rate * options_.learning_rate_factor;
    values.mul_(1 - rate * options_.weight_decay);
    values.add_(update, -AdjustedLearningRate(rate, options_.adjust_lr,
                                              values.sizes()));
  }

  const MuonOptions options_;
};

}  // namespace

at::Tensor NewtonSchulz(const at::Tensor& matrix, const MuonOptions& options) {
  const auto [a, b, c] = options.ns_coefficients;
  // The smaller of the two products of the matrix and its transpose is formed.
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x =
      matrix.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (is_tall) x = x.t();
  const int64_t both[] = {0, 1};
  x.div_(at::linalg_vector_norm(x, 2, both).clamp_min(options.eps));
  // The same numbers in floats, where the processor multiplies these faster:
  // products are rounded to bfloat16 all the same.
  const bool in_floats =
      RunsCpuKernels(x.device().type()) && !HasOneDnnMatmul(at::kBFloat16);
  const auto rounded = [&](const at::Tensor& product) {
    return in_floats ? product.to(at::kBFloat16).to(at::kFloat) : product;
  };
  if (in_floats) x = x.to(at::kFloat);
  for (int64_t i = 0; i < options.ns_steps; ++i) {
    const at::Tensor gram = rounded(at::mm(x, x.t()));
    const at::Tensor update =
        rounded(at::addmm(gram, gram, gram, /*beta=*/b, /*alpha=*/c));
    x = rounded(at::addmm(x, update, x, /*beta=*/a));
  }
  x = x.to(at::kBFloat16);
  return is_tall ? x.t() : x;
}

double AdjustedLearningRate(double learning_rate, MuonAdjustment adjustment,
                            at::IntArrayRef sizes) {
  const auto rows = static_cast<double>(sizes[0]);
  const auto columns = static_cast<double>(sizes[1]);
  switch (adjustment) {
    case MuonAdjustment::kOriginal:
      return learning_rate * std::sqrt(std::max(1.0, rows / columns));
    case MuonAdjustment::kMatchRmsAdamW:
      return learning_rate * (0.2 * std::sqrt(std::max(rows, columns)));
    case MuonAdjustment::kSpectralUnclamped:
      return learning_rate * std::sqrt(rows / columns);
  }
  return learning_rate;
}

absl::StatusOr<std::unique_ptr<OptimizerRule>> MakeMuon(
    const MuonOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckBelowOne("momentum", options.momentum));
  TANDEM_RETURN_IF_ERROR(
      CheckNotNegative("weight_decay", options.weight_decay));
  TANDEM_RETURN_IF_ERROR(CheckPositive("eps", options.eps));
  TANDEM_RETURN_IF_ERROR(
      CheckNotNegative("learning_rate_factor", options.learning_rate_factor));
  for (const double each : options.ns_coefficients) {
    if (std::isfinite(each)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "ns_coefficients has ", each, "; it must be three finite numbers"));
  }
  if (options.ns_steps < 0 || options.ns_steps > kMostIterations) {
    return absl::InvalidArgumentError(
        absl::StrCat("ns_steps is ", options.ns_steps,
                     "; it must be from 0 to ", kMostIterations));
  }
  return std::make_unique<Muon>(options);
}

}  // namespace tandem
