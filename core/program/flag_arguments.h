// Command-line arguments, told apart into flags and the rest.

#ifndef TANDEM_CORE_PROGRAM_FLAG_ARGUMENTS_H_
#define TANDEM_CORE_PROGRAM_FLAG_ARGUMENTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct FlagArguments {
  // The program's name, and each flag as --name=value, under a name that Abseil
  // knows and with a value that it takes without a complaint.
  std::vector<std::string> canonical;
  std::vector<std::string> positional;  // what is no flag
  bool asks_for_help = false;
};

// What is taken, and errors: see ParseCommandLine(). Flags take their values
// here, which is how those are checked.
absl::StatusOr<FlagArguments> ReadFlagArguments(int argc, char** argv);

// Is a flag that is defined in `file` Abseil's own?
bool IsAbseils(absl::string_view file);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_FLAG_ARGUMENTS_H_
