#include "core/precision/device_loss_scale.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

namespace tandem {

DeviceLossScale::DeviceLossScale(const LossScale& scale,
                                 const std::vector<c10::Device>& devices)
    : known_(scale) {
  for (const c10::Device& device : devices) {
    const at::TensorOptions options(device);
    const auto number = [&] {
      return at::zeros({}, options.dtype(at::kFloat));
    };
    on_.push_back(
        {number(), number(), number(), at::zeros({}, options.dtype(at::kInt))});
  }
}

void DeviceLossScale::Tell() {
  const bool is_known =
      scale_ == known_.scale() && tracker_ == known_.growth_tracker();
  if (unread_ > 0 || is_known) return;
  const at::NoGradGuard no_grad;
  scale_ = known_.scale();
  tracker_ = known_.growth_tracker();
  for (OnDevice& each : on_) {
    each.scale.fill_(scale_);
    each.tracker.fill_(tracker_);
  }
}

// The inverse is rounded as LossScale::inverse.
void DeviceLossScale::Begin() {
  Tell();
  const at::NoGradGuard no_grad;
  for (OnDevice& each : on_) {
    each.inverse.copy_(each.scale.to(at::kDouble).reciprocal());
    each.found.zero_();
  }
}

absl::Status DeviceLossScale::Agree(
    absl::FunctionRef<absl::Status(const at::Tensor& found)> sum_over_ranks) {
  const at::NoGradGuard no_grad;
  const at::Tensor& all = on_.front().found;
  for (size_t i = 1; i < on_.size(); ++i) {
    all.add_(on_[i].found.to(all.device()));
  }
  const absl::Status summed = sum_over_ranks(all.view({1}));
  if (!summed.ok()) return summed;
  all.clamp_max_(1);
  for (size_t i = 1; i < on_.size(); ++i) on_[i].found.copy_(all);
  return absl::OkStatus();
}

at::Tensor DeviceLossScale::Update(size_t reads_from) {
  const at::NoGradGuard no_grad;
  const GradScalerOptions& options = known_.options();
  for (OnDevice& each : on_) {
    if (options.constant) break;
    at::_amp_update_scale_(each.scale, each.tracker, each.found,
                           options.growth_factor, options.backoff_factor,
                           options.growth_interval);
  }
  ++unread_;
  return on_[reads_from].found.clone();
}

absl::Status DeviceLossScale::Learn(bool found_inf) {
  CHECK_GT(unread_, 0);
  const absl::Status updated = known_.Update(found_inf);
  if (--unread_ == 0) {
    scale_ = known_.scale();
    tracker_ = known_.growth_tracker();
  }
  return updated;
}

}  // namespace tandem
