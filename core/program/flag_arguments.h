// Command-line arguments, told apart into flags and the rest.

#ifndef TANDEM_CORE_PROGRAM_FLAG_ARGUMENTS_H_
#define TANDEM_CORE_PROGRAM_FLAG_ARGUMENTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/program/flag_guide.h"

namespace tandem {

struct FlagArguments {
  // The program's name, and each flag as --name=value, under a name that Abseil
  // knows and with a value that it takes without a complaint: first those of
  // config files, then those of the command line.
  std::vector<std::string> canonical;
  std::vector<std::string> positional;  // what is no flag
  bool has_config = false;              // some come from a file
  // What else was asked for, with the text behind "=", if any.
  std::optional<std::string> help;
  std::optional<std::string> print_config;
  std::optional<std::string> completion;
};

// What is taken, and errors: see ParseCommandLine(). Flags take their values
// here, which is how those are checked.
absl::StatusOr<FlagArguments> ReadFlagArguments(
    int argc, char** argv, const std::vector<OtherFlagName>& other_names = {});

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_FLAG_ARGUMENTS_H_
