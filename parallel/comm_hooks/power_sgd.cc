#include "parallel/comm_hooks/power_sgd.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/comm_hooks/power_sgd_state.h"
#include "parallel/optim/option_checks.h"

namespace tandem {

PowerSgd::PowerSgd(std::shared_ptr<PowerSgdState> state)
    : state_(std::move(state)) {}

absl::StatusOr<PowerSgd> PowerSgd::Create(const PowerSgdOptions& options) {
  if (options.matrix_approximation_rank < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix_approximation_rank must be at least 1, got ",
                     options.matrix_approximation_rank));
  }
  if (options.start_power_sgd_iter < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("start_power_sgd_iter must not be negative, got ",
                     options.start_power_sgd_iter));
  }
  if (!(options.min_compression_rate > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_compression_rate must be greater than 0, got ",
                     options.min_compression_rate));
  }
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("orthogonalization_epsilon",
                                          options.orthogonalization_epsilon));
  return PowerSgd(std::make_shared<PowerSgdState>(options));
}

CommunicationHook PowerSgd::Hook() const {
  return [state = state_](const GradBucket& bucket, Communicator& group) {
    return state->Start(bucket, group);
  };
}

CompressionStats PowerSgd::Stats() const { return state_->stats(); }

NamedTensors PowerSgd::State() const { return state_->State(); }

absl::Status PowerSgd::LoadState(const NamedTensors& state) {
  return state_->LoadState(state);
}

}  // namespace tandem
