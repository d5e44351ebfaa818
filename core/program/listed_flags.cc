#include "core/program/listed_flags.h"

#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace tandem {

bool IsAbseils(absl::string_view file) {
  return absl::StrContains(file, "absl/flags/");
}

std::string ShortFile(absl::string_view file) {
  if (!absl::ConsumePrefix(&file, "external/")) return std::string(file);
  return std::string(file.substr(file.find('/') + 1));
}

std::map<std::string, absl::CommandLineFlag*> ListedFlags() {
  std::map<std::string, absl::CommandLineFlag*> listed;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (flag->IsRetired() || IsAbseils(flag->Filename())) continue;
    listed[std::string(name)] = flag;
  }
  return listed;
}

std::vector<CommandOption> CommandOptions() {
  std::vector<CommandOption> options = {
      {"--help=TOPIC", "One flag or group of flags in full; all: every flag."},
      {"--print_config",
       "Print the flags that are not at their defaults, as --config takes "
       "them, "
       "and stop. --print_config=all: every flag."},
      {"--completion=SHELL",
       "Print a script that has bash or zsh complete these flags and their "
       "values, and stop."}};
  const bool has_config = absl::FindCommandLineFlag("config") != nullptr;
  options.insert(
      options.begin() + 1,
      {has_config ? "--flagfile=FILE" : "--config=FILE",
       "Flags from a file, one a line, name=value; what begins with # is a "
       "comment. Those of the command line count before them."});
  return options;
}

}  // namespace tandem
