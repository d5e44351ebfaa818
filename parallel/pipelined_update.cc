// From gradients to new parameters.

#include <ATen/ops/zeros.h>

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/fault_point.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "core/trace.h"
#include "parallel/gradient_clipping.h"
#include "parallel/pipelined.h"

namespace tandem {

// Every device's norm, then that of them all: the same on every rank.
absl::StatusOr<double> Pipelined::NormOfAll() {
  const double p = options_.clip_norm_type;
  const at::Tensor norms =
      at::zeros({options_.schedule.devices()}, at::kDouble);
  auto* const values = norms.mutable_data_ptr<double>();
  TANDEM_RETURN_IF_ERROR(executor_->OnDevices([&](int device) {
    const Part& part = parts_.at(device);
    if (options_.clip_value > 0) {
      ClipGradientValue(part.All(), options_.clip_value);
    }
    values[device] = GradientNorm(part.own, p);
    return absl::OkStatus();
  }));
  if (pipe_ != nullptr) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(
        pipe_->AllReduceSum(norms, [] { return "the norm of the gradients"; }));
  }
  double sum = 0;
  for (int device = 0; device < options_.schedule.devices(); ++device) {
    const double norm = values[device];
    if (std::isinf(p)) {
      sum = norm <= sum ? sum : norm;  // a NaN stays
    } else {
      sum += std::pow(norm, p);
    }
  }
  const double norm = std::isinf(p) ? sum : std::pow(sum, 1 / p);
  if (options_.error_if_nonfinite && !std::isfinite(norm)) {
    return absl::OutOfRangeError(absl::StrCat(
        "the norm (of order ", p, ") of all gradients is ", norm,
        " and cannot be clipped; look for the step in which the loss "
        "overflows, or turn error_if_nonfinite off"));
  }
  return norm;
}

absl::Status Pipelined::UpdateDevice(int device, std::optional<double> norm,
                                     double learning_rate) {
  Part& part = parts_.at(device);
  for (FlatBuffer* buffer : part.All()) {
    TANDEM_RETURN_IF_ERROR(buffer->CheckViews());
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("before_optimizer"));
  TraceScope scope("compute", "optimizer");
  return CatchTorch(
      [&] {
        if (norm.has_value()) {
          ScaleGradients(part.All(), options_.clip_norm, *norm);
        } else if (options_.clip_value > 0) {
          ClipGradientValue(part.All(), options_.clip_value);
        }
        part.optimizer->Step(learning_rate);
      },
      "optimizer step");
}

// Is a device's update its own affair?
bool Pipelined::updates_at_once() const {
  return options_.clip_norm == 0 && tied_->empty();
}

absl::Status Pipelined::Update(double learning_rate) {
  TANDEM_RETURN_IF_ERROR(tied_->Sum());
  std::optional<double> norm;
  if (options_.clip_norm > 0) {
    TANDEM_ASSIGN_OR_RETURN(norm, NormOfAll());
  }
  return executor_->OnDevices(
      [&](int device) { return UpdateDevice(device, norm, learning_rate); });
}

}  // namespace tandem
