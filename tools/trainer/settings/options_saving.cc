// What goes with --save_dir, and what does not.

#include "absl/strings/str_cat.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

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

}  // namespace tandem
