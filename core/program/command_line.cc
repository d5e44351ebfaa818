#include "core/program/command_line.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/program/completion.h"
#include "core/program/config_file.h"
#include "core/program/flag_arguments.h"
#include "core/program/listed_flags.h"

namespace tandem {
namespace {

// For --helpfull and the like.
void DescribeToAbseil(absl::string_view usage) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [](absl::string_view file) {
    return !IsAbseils(file);
  };
  config.normalize_filename = ShortFile;
  absl::SetFlagsUsageConfig(config);
}

void OpenStandardStreams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace

std::map<std::string, std::string> FlagValues() {
  std::map<std::string, std::string> values;
  for (const auto& [name, flag] : ListedFlags()) {
    values[name] = flag->CurrentValue();
  }
  return values;
}

absl::Status CheckUseless(const std::vector<std::string>& names,
                          absl::string_view why) {
  for (const std::string& name : names) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    CHECK(flag != nullptr) << "no flag --" << name;
    const std::string value = flag->CurrentValue();
    if (value == flag->DefaultValue()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, "=", value, " was given, but ", why, ": leave it out"));
  }
  return absl::OkStatus();
}

std::string ConfigText(const FlagGuide& guide, bool all) {
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  std::string out;
  for (const FlagGroup& group : AllGroups(guide)) {
    std::string lines;
    for (const GuidedFlag& each : group.flags) {
      const absl::CommandLineFlag& flag = *flags.at(each.name);
      const std::string value = flag.CurrentValue();
      if (!all && value == flag.DefaultValue()) continue;
      absl::StrAppend(&lines, ConfigLineText(each.name, value), "\n");
    }
    if (lines.empty()) continue;
    absl::StrAppend(&out, out.empty() ? "" : "\n",
                    guide.groups.empty() ? "" : "# " + group.name + "\n",
                    lines);
  }
  return out;
}

namespace {

// What was asked for instead of the program, if anything.
absl::StatusOr<std::optional<std::string>> Answer(const FlagGuide& guide,
                                                  const FlagArguments& given) {
  if (given.help.has_value()) {
    if (given.help->empty()) return HelpText(guide);
    return HelpOnTopic(guide, *given.help);
  }
  if (given.completion.has_value()) {
    const std::string& program = given.canonical.front();
    return CompletionScript(guide, program.substr(program.rfind('/') + 1),
                            *given.completion);
  }
  if (!given.print_config.has_value()) return std::optional<std::string>();
  if (given.print_config->empty() || *given.print_config == "all") {
    return ConfigText(guide, *given.print_config == "all");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--print_config=", *given.print_config,
                   ": takes all (every flag), or nothing (those that are not "
                   "at their defaults)"));
}

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(int argc, char** argv,
                                            const FlagGuide& guide) {
  OpenStandardStreams();
  // Abseil takes the message once in a process.
  static const bool once = [&guide] {
    DescribeToAbseil(guide.usage);
    return true;
  }();
  static_cast<void>(once);
  TANDEM_ASSIGN_OR_RETURN(FlagArguments read,
                          ReadFlagArguments(argc, argv, guide.other_names));
  CommandLine line;
  line.positional = std::move(read.positional);
  line.arguments.assign(argv, argv + argc);
  if (read.has_config) {
    line.arguments = read.canonical;
    if (!line.positional.empty()) line.arguments.push_back("--");
    line.arguments.insert(line.arguments.end(), line.positional.begin(),
                          line.positional.end());
  }
  std::vector<char*> canonical;
  for (std::string& arg : read.canonical) canonical.push_back(arg.data());
  canonical.push_back(nullptr);
  absl::ParseCommandLine(static_cast<int>(canonical.size()) - 1,
                         canonical.data());
  TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> answer,
                          Answer(guide, read));
  if (!answer.has_value()) return line;
  std::fputs(answer->c_str(), stdout);
  std::exit(EXIT_SUCCESS);
}

absl::StatusOr<std::vector<std::string>> ParseCommandLine(
    int argc, char** argv, absl::string_view usage) {
  TANDEM_ASSIGN_OR_RETURN(
      CommandLine line,
      ReadCommandLine(argc, argv, FlagGuide{std::string(usage)}));
  return std::move(line.positional);
}

}  // namespace tandem
