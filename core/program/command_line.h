// Command line: Abseil's flags, with hyphens taken for underscores in their
// names, and with errors as a Status instead of an exit.

#ifndef TANDEM_CORE_PROGRAM_COMMAND_LINE_H_
#define TANDEM_CORE_PROGRAM_COMMAND_LINE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Sets the program's flags from `argv` and returns what is no flag (without the
// program's name). `usage` is what --help says above the flags.
//
// Takes --name=value, --name value, --switch, --noswitch and, as torchrun does,
// hyphens for underscores: --nproc-per-node=2, --no-drop-last. Values are left
// alone, and so is all that follows "--".
//
// InvalidArgument for an unknown flag (the message has the nearest known one),
// a missing value or a value of another type; some flags may then be set.
//
// --flagfile=FILE has flags in its place, one a line, as --name=value or
// --switch; what begins with # is a comment. FILE is relative to where the user
// stands (core/files/user_path.h), and errors name it.
//
// Standard streams that are closed are opened on /dev/null before: else the
// next file that the program opens would be one.
//
// --help prints `usage` and every flag but Abseil's own, by the file that
// defines it, and exits with 0; --helpfull (Abseil's too) and --version are
// Abseil's. Call once, at the start of main.
absl::StatusOr<std::vector<std::string>> ParseCommandLine(
    int argc, char** argv, absl::string_view usage);

// Every flag that --help lists, by name, with its value now as text: the same
// text for the same value.
std::map<std::string, std::string> FlagValues();

// InvalidArgument for the first of these flags, known ones, that has another
// value than unless it is given, as it would do nothing: "--NAME=VALUE was
// given, but WHY: leave it out".
absl::Status CheckUseless(const std::vector<std::string>& names,
                          absl::string_view why);

// What --help prints.
std::string HelpText(absl::string_view usage);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_COMMAND_LINE_H_
