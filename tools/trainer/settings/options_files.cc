// What goes with the files that a job reads and writes: --save_dir, --init_from
// and --trace_file; and what does not.

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

// By their names, or as the file system has them.
bool AreSame(const std::string& one, const std::string& other) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::path(one).lexically_normal() ==
             fs::path(other).lexically_normal() ||
         fs::equivalent(one, other, error);
}

// A folder with checkpoints in it is taken for one of them next time, not for
// the weights that lie beside them.
absl::Status CheckFolders(const TrainOptions& options) {
  if (options.init_from.empty() || options.save_dir.empty() ||
      options.eval_only || !AreSame(options.init_from, options.save_dir)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--save_dir=", options.save_dir,
      " is the folder of --init_from=", options.init_from,
      ": the next job would take its checkpoints for the weights to begin "
      "with: give another --save_dir"));
}

}  // namespace

absl::Status CheckSaving(const TrainOptions& options) {
  if (options.save_dir.empty()) {
    const std::pair<bool, std::string> given[] = {
        {options.save_every > 0,
         absl::StrCat("--save_every=", options.save_every)},
        {options.save_every_epochs != TrainOptions().save_every_epochs,
         absl::StrCat("--save_every_epochs=", options.save_every_epochs)},
        {options.keep_last > 0,
         absl::StrCat("--keep_last=", options.keep_last)},
        {options.async_save, "--async_save"},
        {options.resume == "auto", "--resume=auto"}};
    for (const auto& [is_given, flag] : given) {
      if (!is_given) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(flag,
                       " was given, but --save_dir is empty: name a folder for "
                       "checkpoints"));
    }
  }
  if (options.keep_every == 0 || options.keep_last > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--keep_every=", options.keep_every,
                   " was given, but without --keep_last all checkpoints are "
                   "kept: give both, "
                   "or neither"));
}

absl::Status CheckInitialWeights(const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckFolders(options));
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
