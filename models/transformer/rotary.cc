#include "models/transformer/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <cmath>

namespace tandem {
namespace {

// Share of a wave of this frequency: 1 where it is to stay, 0 where it is to be
// divided by the factor.
double ShareKept(double frequency, const Llama3RopeScaling& scaling) {
  constexpr double kPi = 3.14159265358979323846;
  const double waves =
      scaling.original_max_position_embeddings * frequency / (2 * kPi);
  if (waves < scaling.low_freq_factor) return 0;
  if (waves > scaling.high_freq_factor) return 1;
  return (waves - scaling.low_freq_factor) /
         (scaling.high_freq_factor - scaling.low_freq_factor);
}

}  // namespace

std::vector<double> RotaryFrequencies(
    int64_t head_dim, double theta,
    const std::optional<Llama3RopeScaling>& scaling) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(theta, -2.0 * i / head_dim);
    if (scaling) {
      const double kept = ShareKept(frequency, *scaling);
      frequency *= kept + (1 - kept) / scaling->factor;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

// A copy, and not at::tensor, which under a MetaScope has no values to write
// to.
Rotary::Rotary(const std::vector<double>& frequencies)
    : frequencies_(at::from_blob(const_cast<double*>(frequencies.data()),
                                 {static_cast<int64_t>(frequencies.size())},
                                 at::kDouble)
                       .clone()) {}

at::Tensor Rotary::FrequenciesOn(const at::Tensor& like) {
  absl::MutexLock lock(&mutex_);
  // Has been copied when it returns, so that any stream may read it.
  if (frequencies_.device() != like.device()) {
    frequencies_ = frequencies_.to(like.device());
  }
  return frequencies_;
}

Rotary::Turns Rotary::At(int64_t first, int64_t tokens,
                         const at::Tensor& like) {
  return AtPositions(
      at::arange(first, first + tokens, like.options().dtype(at::kLong)), like);
}

Rotary::Turns Rotary::AtPositions(const at::Tensor& positions,
                                  const at::Tensor& like) {
  const at::NoGradGuard no_grad;
  const at::Tensor frequencies = FrequenciesOn(like);
  const at::Tensor angles =
      positions.to(at::kDouble).unsqueeze(-1).unsqueeze(-1) * frequencies;
  return {angles.cos().to(like.scalar_type()),
          angles.sin().to(like.scalar_type())};
}

at::Tensor Turned(const at::Tensor& x, const Rotary::Turns& turns) {
  const int64_t half = x.size(3) / 2;
  const at::Tensor left = x.narrow(3, 0, half);
  const at::Tensor right = x.narrow(3, half, half);
  return at::cat({left * turns.cos - right * turns.sin,
                  right * turns.cos + left * turns.sin},
                 /*dim=*/3);
}

}  // namespace tandem
