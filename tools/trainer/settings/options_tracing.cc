// What goes with --trace_file, and what does not.

#include "absl/strings/str_cat.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

absl::Status CheckTracing(const TrainOptions& options) {
  if (options.trace_file.empty()) {
    if (options.trace_step == TrainOptions().trace_step) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--trace_step=", options.trace_step,
                     " says which step --trace_file shows: give both"));
  }
  if (options.eval_only) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace_file=", options.trace_file,
                     " shows a step of training, of which --eval_only has "
                     "none: leave one out"));
  }
  return options.max_steps > 0
             ? CheckStepToTrace(options, /*done=*/0, options.max_steps)
             : absl::OkStatus();
}

absl::Status CheckStepToTrace(const TrainOptions& options, int64_t done,
                              int64_t in_all) {
  const int64_t step = options.trace_step;
  if (options.trace_file.empty() || (step > done && step <= in_all)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--trace_file=", options.trace_file, " would never be written: step ",
      step, " (--trace_step) ",
      step <= done
          ? absl::StrCat("is done, as ", done, " are")
          : absl::StrCat("does not come, as the job ends after ", in_all),
      in_all > done
          ? absl::StrCat("; it has ", done + 1, " to ", in_all, " before it")
          : "; it has none before it"));
}

}  // namespace tandem
