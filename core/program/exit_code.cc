#include "core/program/exit_code.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/printable.h"

namespace tandem {

int StatusExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return kExitRefused;
    default:
      return kExitFailed;
  }
}

absl::Status RefusedIfMendable(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status) && !absl::IsAlreadyExists(status)) {
    return status;
  }
  return absl::FailedPreconditionError(status.message());
}

int Conclude(absl::string_view program, const absl::Status& status) {
  if (!status.ok()) {
    const std::string line =
        absl::StrCat(program, ": ", PrintableLines(status.message()), "\n");
    std::fputs(line.c_str(), stderr);
  }
  return StatusExitCode(status);
}

}  // namespace tandem
