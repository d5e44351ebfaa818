#include "core/program/flag_arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"
#include "core/files/regular_file.h"
#include "core/files/user_path.h"

namespace tandem {
namespace {

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
  std::vector<std::string> all;
  for (const auto& [known, flag] : absl::GetAllFlags()) {
    if (!IsAbseils(flag->Filename())) all.emplace_back(known);
  }
  std::sort(all.begin(), all.end());
  const std::string nearest = NearestName(name, all);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag --", name,
      nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?"),
      " (--help lists all flags)"));
}

// What a flag takes, by its type; empty: the flag says so itself.
std::string FlagType(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<uint64_t>()) return "a whole number, 0 or more";
  if (flag.IsOfType<int>() || flag.IsOfType<int64_t>() ||
      flag.IsOfType<std::optional<int>>()) {
    return "a whole number";
  }
  const bool is_number =
      flag.IsOfType<double>() || flag.IsOfType<std::optional<double>>();
  return is_number ? "a number" : "";
}

// Where `value` is a number, it is too large (or too small) for the flag.
std::string FlagLimit(const absl::CommandLineFlag& flag,
                      absl::string_view value) {
  absl::ConsumePrefix(&value, "-");
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c));
      })) {
    return "";
  }
  if (flag.IsOfType<int>() || flag.IsOfType<std::optional<int>>()) {
    return absl::StrCat(" of at most ", std::numeric_limits<int>::max());
  }
  return flag.IsOfType<int64_t>()
             ? absl::StrCat(" of at most ", std::numeric_limits<int64_t>::max())
             : "";
}

absl::Status CheckValue(absl::CommandLineFlag& flag, const std::string& value) {
  std::string error;
  if (IsAbseils(flag.Filename()) || flag.ParseFrom(value, &error)) {
    return absl::OkStatus();
  }
  const std::string type = FlagType(flag);
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag.Name(), "=", value, ": ",
      type.empty() ? error
                   : absl::StrCat("takes ", type, FlagLimit(flag, value)),
      "; the flag: ", flag.Help()));
}

constexpr char kFlagFile[] = "flagfile";
constexpr uint64_t kMostFlagBytes = uint64_t{1} << 20;
constexpr int kDeepestFlagFile = 8;

// Its flags, one a line, as Abseil has them; what begins with # is a comment.
absl::StatusOr<std::vector<std::string>> LinesOfFlagFile(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadShortFile(UserPath(path), kMostFlagBytes));
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    lines.emplace_back(line);
  }
  return lines;
}

// Reads arguments into what Abseil takes without a complaint.
class Reader {
 public:
  // `depth`: of files that are named in files.
  explicit Reader(std::vector<std::string> args, int depth = 0)
      : args_(std::move(args)), depth_(depth) {}

  absl::StatusOr<FlagArguments> Read() {
    TANDEM_RETURN_IF_ERROR(ReadAll());
    return std::move(read_);
  }

 private:
  absl::Status ReadAll() {
    for (next_ = 0; next_ < args_.size();) {
      const std::string arg = args_[next_++];
      if (arg == "--") {
        read_.positional.insert(read_.positional.end(), args_.begin() + next_,
                                args_.end());
        return absl::OkStatus();
      }
      if (arg.size() < 2 || arg[0] != '-') {
        read_.positional.push_back(arg);
      } else {
        TANDEM_RETURN_IF_ERROR(ReadFlag(SplitFlag(arg)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlag(FlagText text) {
    if ((text.name == "help" || text.name == "h") && !text.value.has_value()) {
      read_.asks_for_help = true;
      return absl::OkStatus();
    }
    if (IsUsageFlag(text.name)) {
      read_.canonical.push_back(
          absl::StrCat("--", text.name, "=", text.value.value_or("true")));
      return absl::OkStatus();
    }
    if (text.name == kFlagFile) return ReadFlagFiles(std::move(text));
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
    read_.canonical.push_back(
        absl::StrCat("--", flag->Name(), "=", *text.value));
    return absl::OkStatus();
  }

  // In the place of the flag that names them, from where the user stands: what
  // comes later counts.
  absl::Status ReadFlagFiles(FlagText text) {
    if (!text.value.has_value() && next_ < args_.size()) {
      text.value = args_[next_++];
    }
    if (!text.value.has_value()) {
      return absl::InvalidArgumentError(
          "--flagfile needs a value: --flagfile=FILE");
    }
    for (const std::string& path : std::vector<std::string>(
             absl::StrSplit(*text.value, ',', absl::SkipEmpty()))) {
      const absl::Status read = ReadFlagFile(path);
      if (read.ok()) continue;
      return absl::Status(
          read.code(), absl::StrCat("--flagfile=", path, ": ", read.message()));
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlagFile(const std::string& path) {
    if (depth_ == kDeepestFlagFile) {
      return absl::InvalidArgumentError("files name each other too deeply");
    }
    TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> lines,
                            LinesOfFlagFile(path));
    TANDEM_ASSIGN_OR_RETURN(FlagArguments given,
                            Reader(std::move(lines), depth_ + 1).Read());
    if (!given.positional.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", given.positional.front(),
                       "' is no flag: expected --name=value in a line"));
    }
    read_.canonical.insert(read_.canonical.end(), given.canonical.begin(),
                           given.canonical.end());
    read_.asks_for_help |= given.asks_for_help;
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
  const int depth_;
  size_t next_ = 0;
  FlagArguments read_;
};

}  // namespace

bool IsAbseils(absl::string_view file) {
  return absl::StrContains(file, "absl/flags/");
}

absl::StatusOr<FlagArguments> ReadFlagArguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  std::string program;
  if (!arguments.empty()) {
    program = arguments.front();
    arguments.erase(arguments.begin());
  }
  TANDEM_ASSIGN_OR_RETURN(FlagArguments read,
                          Reader(std::move(arguments)).Read());
  read.canonical.insert(read.canonical.begin(), std::move(program));
  return read;
}

}  // namespace tandem
