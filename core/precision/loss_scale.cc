#include "core/precision/loss_scale.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr char kScale[] = "scale";
constexpr char kGrowthFactor[] = "growth_factor";
constexpr char kBackoffFactor[] = "backoff_factor";
constexpr char kGrowthInterval[] = "growth_interval";
constexpr char kGrowthTracker[] = "_growth_tracker";

constexpr double kMostCounted = int64_t{1} << 53;  // by a double

absl::Status CheckThat(bool holds, absl::string_view option, double value,
                       absl::string_view expected) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", value, ": must be ", expected));
}

absl::Status CheckScale(absl::string_view name, double scale) {
  return CheckThat(
      std::isfinite(static_cast<float>(scale)) && scale >= kLeastLossScale,
      name, scale,
      absl::StrCat("a number from ", kLeastLossScale,
                   " to the greatest float"));
}

bool IsCount(double value) {
  return value >= 0 && value <= kMostCounted && std::floor(value) == value;
}

absl::StatusOr<double> StateNumber(const std::map<std::string, double>& state,
                                   const char* key) {
  const auto found = state.find(key);
  if (found != state.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "the state of a GradScaler lacks ", key,
      state.empty() ? ": it is empty, as that of one that is off" : ""));
}

absl::StatusOr<int64_t> WholeNumber(const std::map<std::string, double>& state,
                                    const char* key) {
  TANDEM_ASSIGN_OR_RETURN(const double count, StateNumber(state, key));
  TANDEM_RETURN_IF_ERROR(
      CheckThat(IsCount(count), key, count, "a whole number, 0 or more"));
  return static_cast<int64_t>(count);
}

}  // namespace

absl::Status CheckGradScalerOptions(const GradScalerOptions& options) {
  const double backoff = options.backoff_factor;
  TANDEM_RETURN_IF_ERROR(CheckScale("init_scale", options.init_scale));
  TANDEM_RETURN_IF_ERROR(CheckThat(
      options.growth_factor > 1 && std::isfinite(options.growth_factor),
      kGrowthFactor, options.growth_factor, "a number greater than 1"));
  TANDEM_RETURN_IF_ERROR(CheckThat(backoff > 0 && backoff < 1, kBackoffFactor,
                                   backoff, "greater than 0 and less than 1"));
  return CheckThat(options.growth_interval >= 1, kGrowthInterval,
                   static_cast<double>(options.growth_interval), "at least 1");
}

absl::StatusOr<LossScale> LossScale::Create(const GradScalerOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckGradScalerOptions(options));
  return LossScale(options);
}

absl::Status LossScale::BackOff() {
  ++skipped_steps_;
  ++skipped_in_a_row_;
  if (options_.constant) return absl::OkStatus();
  growth_tracker_ = 0;
  const auto lower = static_cast<float>(scale_ * options_.backoff_factor);
  if (lower >= kLeastLossScale) {
    scale_ = lower;
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(
      "the gradients of the last ", skipped_in_a_row_,
      " steps were not finite, and the loss scale has come down to ", scale_,
      ", below which fp16 holds no gradients: the forward pass overflows, "
      "which "
      "no scale helps against, or training has diverged. Look at the first "
      "step that was skipped; try a smaller learning rate, clipping by norm, "
      "or bf16, which needs no scale"));
}

// In double, then rounded, as PyTorch does; it does not grow beyond floats.
void LossScale::Grow() {
  skipped_in_a_row_ = 0;
  if (options_.constant) return;
  if (++growth_tracker_ < options_.growth_interval) return;
  growth_tracker_ = 0;
  const auto greater = static_cast<float>(scale_ * options_.growth_factor);
  if (std::isfinite(greater)) scale_ = greater;
}

absl::Status LossScale::Update(bool found_inf) {
  if (!is_enabled()) return absl::OkStatus();
  if (found_inf) return BackOff();
  Grow();
  return absl::OkStatus();
}

std::map<std::string, double> LossScale::State() const {
  if (!is_enabled() || options_.constant) return {};
  return {{kScale, scale_},
          {kGrowthFactor, options_.growth_factor},
          {kBackoffFactor, options_.backoff_factor},
          {kGrowthInterval, static_cast<double>(options_.growth_interval)},
          {kGrowthTracker, static_cast<double>(growth_tracker_)}};
}

absl::Status LossScale::LoadState(const std::map<std::string, double>& state) {
  if (!is_enabled() || options_.constant) return absl::OkStatus();
  GradScalerOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.init_scale, StateNumber(state, kScale));
  TANDEM_ASSIGN_OR_RETURN(options.growth_factor,
                          StateNumber(state, kGrowthFactor));
  TANDEM_ASSIGN_OR_RETURN(options.backoff_factor,
                          StateNumber(state, kBackoffFactor));
  TANDEM_ASSIGN_OR_RETURN(options.growth_interval,
                          WholeNumber(state, kGrowthInterval));
  TANDEM_ASSIGN_OR_RETURN(const int64_t tracker,
                          WholeNumber(state, kGrowthTracker));
  for (const auto& each : state) {
    if (State().count(each.first) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the state of a GradScaler has an unknown key, ", each.first));
  }
  TANDEM_RETURN_IF_ERROR(CheckScale(kScale, options.init_scale));
  TANDEM_ASSIGN_OR_RETURN(*this, Create(options));
  // Devices grow when the tracker comes to the interval, and not beyond it.
  growth_tracker_ = std::min(tracker, options_.growth_interval - 1);
  return absl::OkStatus();
}

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

absl::Status DeviceLossScale::NoteVerdict(bool found_inf) {
  CHECK_GT(unread_, 0);
  const absl::Status updated = known_.Update(found_inf);
  if (--unread_ == 0) {
    scale_ = known_.scale();
    tracker_ = known_.growth_tracker();
  }
  return updated;
}

}  // namespace tandem
