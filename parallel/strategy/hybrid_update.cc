// From gradients to new parameters.

#include <ATen/ops/zeros.h>

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/strategy/hybrid_strategy.h"

namespace tandem {

// Of every parameter's gradient, in the order of the model: the same on every
// rank, wherever it is cut.
absl::StatusOr<double> HybridStrategy::NormOfAll() {
  const double p = options_.clip_norm_type;
  const at::Tensor all = at::zeros({first_parameters_.back()}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  TANDEM_RETURN_IF_ERROR(executor_->OnDevices([&](int device) {
    for (int i : options_.schedule.stages_of[static_cast<size_t>(device)]) {
      TrainedStage& stage = *stages_[static_cast<size_t>(i)];
      stage.ClipValues();
      for (const GradientSum& each : GradientSums(stage.own(), p)) {
        sums[first_parameters_[static_cast<size_t>(i)] + each.slot->position] =
            each.sum;
      }
    }
    return absl::OkStatus();
  }));
  if (groups_.pipe() != nullptr) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(groups_.pipe()->AllReduceSum(
        all, [] { return "the norm of the gradients"; }));
  }
  const double norm = NormOfSums({sums, sums + all.numel()}, p);
  if (options_.error_if_nonfinite && !std::isfinite(norm)) {
    return absl::OutOfRangeError(absl::StrCat(
        "the norm (of order ", p, ") of all gradients is ", norm,
        " and cannot be clipped; look for the step in which the loss "
        "overflows, or turn error_if_nonfinite off"));
  }
  return norm;
}

absl::Status HybridStrategy::UpdateDevice(int device,
                                          std::optional<double> norm,
                                          std::optional<double> learning_rate) {
  for (int i : options_.schedule.stages_of[static_cast<size_t>(device)]) {
    TrainedStage& stage = *stages_[static_cast<size_t>(i)];
    if (learning_rate.has_value()) {
      if (!norm.has_value()) stage.ClipValues();
      TANDEM_RETURN_IF_ERROR(stage.Update(norm, *learning_rate));
    }
    TANDEM_RETURN_IF_ERROR(options_.reproducible ? ApplyStatistics(i)
                                                 : stage.ShareBuffers());
  }
  return absl::OkStatus();
}

// Is a device's update its own affair?
bool HybridStrategy::updates_at_once() const {
  return options_.clip_norm == 0 && tied_->empty();
}

absl::Status HybridStrategy::Finish(std::optional<double> learning_rate) {
  std::optional<double> norm;
  if (options_.clip_norm > 0 && learning_rate.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(norm, NormOfAll());
  }
  TANDEM_RETURN_IF_ERROR(executor_->OnDevices(
      [&](int device) { return UpdateDevice(device, norm, learning_rate); }));
  ++step_;
  return absl::OkStatus();
}

}  // namespace tandem
