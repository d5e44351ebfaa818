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
#include "core/program/flag_guide.h"

namespace tandem {

// Sets the program's flags from `argv`.
//
// Takes --name=value, --name value, --switch, --noswitch and, as torchrun does,
// hyphens for underscores: --nproc-per-node=2, --no-drop-last. Values are left
// alone, and so is all that follows "--".
//
// InvalidArgument for an unknown flag (the message has the nearest known one),
// a missing value or a value of another type; some flags may then be set.
//
// --config=FILE (or --flagfile, which is the same) has flags, one a line:
// core/program/config_file.h says in which form. FILE is relative to where the
// user stands (core/files/user_path.h). What the command line says counts
// before what a file says, wherever it stands; of several files a later one
// counts. A file may name one further file itself, from its own folder, before
// which its other lines count. Errors begin with FILE:LINE. A program with a
// flag --config of its own has --flagfile alone.
//
// Standard streams that are closed are opened on /dev/null before: else the
// next file that the program opens would be one.
//
// These end the process with 0: --help (core/program/flag_guide.h says what it
// prints, and --help=TOPIC), --print_config (ConfigText's flags that are not at
// their defaults; --print_config=all: every flag), --completion=SHELL
// (core/program/completion.h). --helpfull and --version are Abseil's. Call
// once, at the start of main.
struct CommandLine {
  std::vector<std::string> positional;  // what is no flag
  // For another process of the same program: the same command line, with what
  // config files say in their place.
  std::vector<std::string> arguments;
};
absl::StatusOr<CommandLine> ReadCommandLine(int argc, char** argv,
                                            const FlagGuide& guide);

// The same for a program without a guide; its `positional`.
absl::StatusOr<std::vector<std::string>> ParseCommandLine(
    int argc, char** argv, absl::string_view usage);

// The flags of this process in the form that --config takes, in the guide's
// order and under its groups' names: those that have another value than unless
// they are given, or all.
std::string ConfigText(const FlagGuide& guide, bool all);

// Every flag that --help=all lists, by name, with its value now as text: the
// same text for the same value.
std::map<std::string, std::string> FlagValues();

// InvalidArgument for the first of these flags, known ones, that has another
// value than unless it is given, as it would do nothing: "--NAME=VALUE was
// given, but WHY: leave it out".
absl::Status CheckUseless(const std::vector<std::string>& names,
                          absl::string_view why);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_COMMAND_LINE_H_
