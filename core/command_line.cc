#include "core/command_line.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/edit_distance.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

constexpr size_t kHelpWidth = 79;

bool IsAbseils(absl::string_view file) {
  return absl::StrContains(file, "absl/flags/");
}

bool IsListed(const absl::CommandLineFlag& flag) {
  return !flag.IsRetired() && !IsAbseils(flag.Filename());
}

// The file as its repository knows it, whoever builds it.
std::string ShortFile(absl::string_view file) {
  if (!absl::ConsumePrefix(&file, "external/")) return std::string(file);
  return std::string(file.substr(file.find('/') + 1));
}

// Abseil answers these itself, although they are no flags to reflection.
bool IsUsageFlag(absl::string_view name) {
  for (absl::string_view known :
       {"help", "helpfull", "helpmatch", "helpon", "helppackage", "helpshort",
        "only_check_args", "version"}) {
    if (name == known) return true;
  }
  return false;
}

// A flag as it stands on the command line.
struct FlagText {
  std::string name;
  std::optional<std::string> value;
};

FlagText SplitFlag(absl::string_view arg) {
  absl::ConsumePrefix(&arg, "-");
  absl::ConsumePrefix(&arg, "-");
  const size_t equals = arg.find('=');
  FlagText flag;
  flag.name = absl::StrReplaceAll(arg.substr(0, equals), {{"-", "_"}});
  if (equals != absl::string_view::npos) {
    flag.value = std::string(arg.substr(equals + 1));
  }
  return flag;
}

// The switch that `flag` turns off, --noNAME or --no-NAME; null if none.
absl::CommandLineFlag* FindNegated(const FlagText& flag) {
  absl::string_view name = flag.name;
  if (flag.value.has_value() || !absl::ConsumePrefix(&name, "no")) {
    return nullptr;
  }
  absl::ConsumePrefix(&name, "_");
  absl::CommandLineFlag* found = absl::FindCommandLineFlag(name);
  return found != nullptr && found->IsOfType<bool>() ? found : nullptr;
}

absl::Status UnknownFlag(const std::string& name) {
  std::string nearest;
  int least = static_cast<int>(name.size()) / 3 + 2;  // farther is no typing
  for (const auto& [known, flag] : absl::GetAllFlags()) {
    if (IsAbseils(flag->Filename())) continue;
    const int distance = EditDistance(name, known);
    if (distance < least) {
      least = distance;
      nearest = std::string(known);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag --", name,
      nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?"),
      " (--help lists all flags)"));
}

// What a flag takes, by its type; empty: the flag says so itself.
std::string TypeOf(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<uint64_t>()) return "a whole number, 0 or more";
  if (flag.IsOfType<int>() || flag.IsOfType<int64_t>() ||
      flag.IsOfType<std::optional<int>>()) {
    return "a whole number";
  }
  return flag.IsOfType<double>() ? "a number" : "";
}

absl::Status CheckValue(absl::CommandLineFlag& flag, const std::string& value) {
  std::string error;
  if (IsAbseils(flag.Filename()) || flag.ParseFrom(value, &error)) {
    return absl::OkStatus();
  }
  const std::string type = TypeOf(flag);
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag.Name(), "=", value, ": ",
                   type.empty() ? error : absl::StrCat("takes ", type),
                   "; the flag: ", flag.Help()));
}

// Reads arguments into what Abseil takes without a complaint.
class Reader {
 public:
  Reader(int argc, char** argv) : args_(argv, argv + argc) {}

  absl::Status Read() {
    canonical_.push_back(args_.empty() ? "" : args_[0]);
    for (next_ = 1; next_ < args_.size();) {
      const std::string arg = args_[next_++];
      if (arg == "--") {
        positional_.insert(positional_.end(), args_.begin() + next_,
                           args_.end());
        return absl::OkStatus();
      }
      if (arg.size() < 2 || arg[0] != '-') {
        positional_.push_back(arg);
      } else {
        TANDEM_RETURN_IF_ERROR(ReadFlag(SplitFlag(arg)));
      }
    }
    return absl::OkStatus();
  }

  bool asks_for_help() const { return asks_for_help_; }
  std::vector<std::string>& canonical() { return canonical_; }
  const std::vector<std::string>& positional() const { return positional_; }

 private:
  absl::Status ReadFlag(FlagText text) {
    if ((text.name == "help" || text.name == "h") && !text.value.has_value()) {
      asks_for_help_ = true;
      return absl::OkStatus();
    }
    if (IsUsageFlag(text.name)) {
      canonical_.push_back(
          absl::StrCat("--", text.name, "=", text.value.value_or("true")));
      return absl::OkStatus();
    }
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(text.name);
    if (flag == nullptr) {
      flag = FindNegated(text);
      if (flag == nullptr) return UnknownFlag(text.name);
      text.value = "false";
    }
    if (!text.value.has_value()) {
      TANDEM_ASSIGN_OR_RETURN(text.value, NextValue(*flag));
    }
    TANDEM_RETURN_IF_ERROR(CheckValue(*flag, *text.value));
    canonical_.push_back(absl::StrCat("--", flag->Name(), "=", *text.value));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> NextValue(const absl::CommandLineFlag& flag) {
    if (flag.IsOfType<bool>()) return "true";
    if (next_ < args_.size() && !absl::StartsWith(args_[next_], "--")) {
      return args_[next_++];
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag.Name(), " needs a value: --", flag.Name(),
                     "=VALUE; the flag: ", flag.Help()));
  }

  std::vector<std::string> args_;
  size_t next_ = 0;
  bool asks_for_help_ = false;
  std::vector<std::string> canonical_;
  std::vector<std::string> positional_;
};

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

}  // namespace

std::map<std::string, std::string> FlagValues() {
  std::map<std::string, std::string> values;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsListed(*flag)) values[std::string(name)] = flag->CurrentValue();
  }
  return values;
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
  // Abseil takes the message once in a process.
  static const bool once = [usage] {
    DescribeToAbseil(usage);
    return true;
  }();
  static_cast<void>(once);
  Reader reader(argc, argv);
  TANDEM_RETURN_IF_ERROR(reader.Read());
  if (reader.asks_for_help()) {
    std::fputs(HelpText(usage).c_str(), stdout);
    std::exit(EXIT_SUCCESS);
  }
  std::vector<char*> canonical;
  for (std::string& arg : reader.canonical()) canonical.push_back(arg.data());
  canonical.push_back(nullptr);
  absl::ParseCommandLine(static_cast<int>(canonical.size()) - 1,
                         canonical.data());
  return reader.positional();
}

}  // namespace tandem
