// What goes with --init_from, and what does not.

#include "tools/trainer/settings/options.h"

namespace tandem {

absl::Status CheckInitialWeights(const TrainOptions& options) {
  if (options.eval_only && options.resume.empty() &&
      options.init_from.empty()) {
    return absl::InvalidArgumentError(
        "--eval_only evaluates a checkpoint: name it with --resume=PATH, or "
        "weights with --init_from=PATH");
  }
  const bool allows =
      !options.allow_missing.empty() || !options.allow_unexpected.empty();
  if (!allows || (!options.init_from.empty() && options.resume.empty())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--allow_missing and --allow_unexpected are for --init_from=PATH, "
      "without --resume, whose checkpoint is whole: leave them out");
}

}  // namespace tandem
