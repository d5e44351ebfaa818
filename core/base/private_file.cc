#include "core/base/private_file.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem {

absl::Status CheckPrivate(const struct stat& file, const std::string& name,
                          const std::string& mend) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (file.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is a file of user ", file.st_uid,
        ", but this process is of user ", geteuid(),
        ": give a file of yours, on a file system that keeps owners and "
        "modes"));
  }
  if ((file.st_mode & kOthers) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name, " is open to others (mode ",
                   absl::StrFormat("%04o", file.st_mode & 07777), "): ", mend));
}

}  // namespace tandem
