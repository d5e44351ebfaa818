// Listed flags: a program's own, and what is said of one that is not there.

#ifndef TANDEM_CORE_PROGRAM_LISTED_FLAGS_H_
#define TANDEM_CORE_PROGRAM_LISTED_FLAGS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Whether a flag that is defined in `file` is Abseil's own.
bool IsAbseils(absl::string_view file);

// Every flag of this process that is not Abseil's own, by name.
std::map<std::string, absl::CommandLineFlag*> ListedFlags();

// The file that defines a flag, as its repository knows it, whoever builds it.
std::string ShortFile(absl::string_view file);

// What --config, --print_config and the like are, which are no flags: a line's
// beginning and what it does.
struct CommandOption {
  std::string form;  // "--config=FILE"
  std::string text;
};
std::vector<CommandOption> CommandOptions();

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_LISTED_FLAGS_H_
