// Order of a step's halves: gradients first, then what becomes of them.

#ifndef TANDEM_PARALLEL_STRATEGY_STEP_HALVES_H_
#define TANDEM_PARALLEL_STRATEGY_STEP_HALVES_H_

#include "absl/status/status.h"

namespace tandem {

// FailedPrecondition for halves that do not follow each other (see
// Strategy::ComputeGradients). Not thread-safe.
class StepHalves {
 public:
  absl::Status CheckFirst() const {
    if (!has_gradients_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the gradients of the step before are still there: Update or "
        "SkipUpdate comes first");
  }

  void EndFirst() { has_gradients_ = true; }

  absl::Status BeginSecond() {
    if (!has_gradients_) {
      return absl::FailedPreconditionError(
          "there are no gradients: ComputeGradients comes first");
    }
    has_gradients_ = false;
    return absl::OkStatus();
  }

 private:
  bool has_gradients_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STEP_HALVES_H_
