// Exit codes: what a program ends with, and the line in which it says why.

#ifndef TANDEM_CORE_PROGRAM_EXIT_CODE_H_
#define TANDEM_CORE_PROGRAM_EXIT_CODE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// The same of every program; but those whose answer is their exit code (doctor,
// diagnose: 1 for "no") end with kExitRefused whatever went wrong, as grep
// does.
constexpr int kExitFailed = 1;   // it was to be expected to go well
constexpr int kExitRefused = 2;  // the user can mend it in what they gave

// Refused are InvalidArgument, NotFound, FailedPrecondition and Unimplemented;
// 0 for OK.
int StatusExitCode(const absl::Status& status);

// What the system says of a path that the user named, when it is tried for the
// first time: where they may not write there, or something stands there
// (PermissionDenied, AlreadyExists), that is theirs to mend as well, and
// FailedPrecondition. A disk that is full, or fails, is no mistake of theirs.
absl::Status RefusedIfMendable(const absl::Status& status);

// What main returns: that; an error is written to stderr before, as
// "PROGRAM: MESSAGE", without what a terminal would obey
// (core/base/printable.h).
int Conclude(absl::string_view program, const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_EXIT_CODE_H_
