#include "core/program/command_line.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/program/flag_arguments.h"

namespace tandem {
namespace {

constexpr size_t kHelpWidth = 79;

bool IsListed(const absl::CommandLineFlag& flag) {
  return !flag.IsRetired() && !IsAbseils(flag.Filename());
}

// The file as its repository knows it, whoever builds it.
std::string ShortFile(absl::string_view file) {
  if (!absl::ConsumePrefix(&file, "external/")) return std::string(file);
  return std::string(file.substr(file.find('/') + 1));
}

void AppendWrapped(absl::string_view text, absl::string_view indent,
                   std::string& out) {
  std::string line(indent);
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > indent.size() &&
        line.size() + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(&out, line, "\n");
      line = std::string(indent);
    }
    absl::StrAppend(&line, line.size() > indent.size() ? " " : "", word);
  }
  absl::StrAppend(&out, line, "\n");
}

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
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsListed(*flag)) values[std::string(name)] = flag->CurrentValue();
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

std::string HelpText(absl::string_view usage) {
  std::map<std::string, std::map<std::string, absl::CommandLineFlag*>> files;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsListed(*flag)) continue;
    files[ShortFile(flag->Filename())][std::string(name)] = flag;
  }
  std::string out = absl::StrCat(usage, "\n");
  for (const auto& [file, flags] : files) {
    absl::StrAppend(&out, "\nFlags of ", file, ":\n");
    for (const auto& [name, flag] : flags) {
      const std::string value = flag->DefaultValue();
      absl::StrAppend(
          &out, "  --", name,
          value.empty() ? "" : absl::StrCat(" (default: ", value, ")"), "\n");
      AppendWrapped(flag->Help(), "      ", out);
    }
  }
  absl::StrAppend(&out,
                  "\nHyphens may stand for underscores. --helpfull shows "
                  "Abseil's own flags too.\n");
  return out;
}

absl::StatusOr<std::vector<std::string>> ParseCommandLine(
    int argc, char** argv, absl::string_view usage) {
  OpenStandardStreams();
  // Abseil takes the message once in a process.
  static const bool once = [usage] {
    DescribeToAbseil(usage);
    return true;
  }();
  static_cast<void>(once);
  TANDEM_ASSIGN_OR_RETURN(FlagArguments arguments,
                          ReadFlagArguments(argc, argv));
  if (arguments.asks_for_help) {
    std::fputs(HelpText(usage).c_str(), stdout);
    std::exit(EXIT_SUCCESS);
  }
  std::vector<char*> canonical;
  for (std::string& arg : arguments.canonical) canonical.push_back(arg.data());
  canonical.push_back(nullptr);
  absl::ParseCommandLine(static_cast<int>(canonical.size()) - 1,
                         canonical.data());
  return std::move(arguments.positional);
}

}  // namespace tandem
