// Shell completion: a script that has a shell complete a program's flags, and
// the values of those that take one of a few.

#ifndef TANDEM_CORE_PROGRAM_COMPLETION_H_
#define TANDEM_CORE_PROGRAM_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/program/flag_guide.h"

namespace tandem {

// For `program`, a command's name without its folder. `shell`: bash (4 or
// newer), to be evaluated: eval "$(train --completion=bash)"; or zsh, in the
// same way behind compinit, or as a file _train in $fpath. InvalidArgument for
// another shell.
absl::StatusOr<std::string> CompletionScript(const FlagGuide& guide,
                                             absl::string_view program,
                                             absl::string_view shell);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_COMPLETION_H_
