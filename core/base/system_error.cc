#include "core/base/system_error.h"

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

absl::Status WithLimit(const absl::Status& error, absl::string_view limit) {
  return absl::Status(
      error.code(),
      absl::StrCat(error.message(), " (the limit on ", limit, ")"));
}

}  // namespace

absl::Status SystemError(int error, absl::string_view what) {
  const absl::Status status = absl::ErrnoToStatus(error, what);
  if (error == EMFILE) return WithLimit(status, "open files: ulimit -n");
  if (error == ENFILE) {
    return WithLimit(status, "the machine's open files: fs.file-max");
  }
  return status;
}

absl::Status StartError(int error, absl::string_view what) {
  if (error != EAGAIN) return SystemError(error, what);
  return WithLimit(absl::ErrnoToStatus(error, what),
                   "threads and processes: ulimit -u, or pids.max of the "
                   "control group");
}

}  // namespace tandem
