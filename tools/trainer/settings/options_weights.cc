// What goes with --init_from, and what does not.

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

}  // namespace tandem
