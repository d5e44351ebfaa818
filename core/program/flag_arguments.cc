#include "core/program/flag_arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
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
#include "core/files/user_path.h"
#include "core/program/config_file.h"
#include "core/program/listed_flags.h"

namespace tandem {
namespace {

// Abseil answers these itself, although they are no flags to reflection.
bool IsUsageFlag(absl::string_view name) {
  for (absl::string_view known :
       {"helpfull", "helpmatch", "helpon", "helppackage", "helpshort",
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

// What to write instead of a name that the program has not.
std::string Advice(absl::string_view name,
                   const std::vector<OtherFlagName>& other_names) {
  absl::string_view positive = name;
  if (absl::ConsumePrefix(&positive, "no")) absl::ConsumePrefix(&positive, "_");
  for (const OtherFlagName& each : other_names) {
    if (each.name == name || each.name == positive) return each.advice;
  }
  return "";
}

absl::Status UnknownFlag(const std::string& name,
                         const std::vector<OtherFlagName>& other_names) {
  const std::string advice = Advice(name, other_names);
  if (!advice.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag --", name, ": ", advice));
  }
  std::vector<std::string> all;
  for (const auto& [known, flag] : ListedFlags()) all.push_back(known);
  const std::string nearest = NearestName(name, all);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag --", name,
      nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?"),
      " (--help=all lists all flags)"));
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

// Files that name files: one that the command line names may name a further
// one.
constexpr int kDeepestFile = 2;

// What is no flag to reflection, unless the program has one of that name, and
// is for the command line alone.
std::optional<std::string> FlagArguments::*RequestOf(absl::string_view name) {
  if (name == "help" || name == "h") return &FlagArguments::help;
  if (absl::FindCommandLineFlag(name) != nullptr) return nullptr;
  if (name == "print_config") return &FlagArguments::print_config;
  return name == "completion" ? &FlagArguments::completion : nullptr;
}

bool NamesFile(absl::string_view name) {
  return name == "flagfile" ||
         (name == "config" && absl::FindCommandLineFlag(name) == nullptr);
}

// Reads arguments into what Abseil takes without a complaint.
class Reader {
 public:
  // `depth`: of files that are named in files, in `folder`.
  Reader(std::vector<std::string> args,
         const std::vector<OtherFlagName>& other_names, int depth = 0,
         std::string folder = "")
      : args_(std::move(args)),
        other_names_(other_names),
        depth_(depth),
        folder_(std::move(folder)) {}

  // Files come first: what stands beside the flag that names them counts.
  absl::StatusOr<FlagArguments> Read() {
    TANDEM_RETURN_IF_ERROR(ReadAll());
    read_.canonical.insert(read_.canonical.begin(), of_files_.begin(),
                           of_files_.end());
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
    if (const auto request = RequestOf(text.name)) {
      if (depth_ > 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--", text.name, " is for the command line, not for a file"));
      }
      read_.*request = text.value.value_or("");
      return absl::OkStatus();
    }
    if (IsUsageFlag(text.name)) {
      read_.canonical.push_back(
          absl::StrCat("--", text.name, "=", text.value.value_or("true")));
      return absl::OkStatus();
    }
    if (NamesFile(text.name)) return ReadConfigs(std::move(text));
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(text.name);
    if (flag == nullptr) {
      flag = FindNegated(text);
      if (flag == nullptr) return UnknownFlag(text.name, other_names_);
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

  // One after the other, from where the user stands, or from the folder of the
  // file that names them: a later one counts.
  absl::Status ReadConfigs(FlagText text) {
    if (!text.value.has_value() && next_ < args_.size()) {
      text.value = args_[next_++];
    }
    if (!text.value.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", text.name, " needs a value: --", text.name, "=FILE"));
    }
    if (depth_ == kDeepestFile) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", text.name, "=", *text.value,
          ": a file that another one names cannot name a further one"));
    }
    for (const std::string& path : std::vector<std::string>(
             absl::StrSplit(*text.value, ',', absl::SkipEmpty()))) {
      const absl::Status read = ReadConfig(path);
      if (read.ok()) continue;
      return absl::Status(read.code(), absl::StrCat("--", text.name, "=", path,
                                                    ": ", read.message()));
    }
    read_.has_config = true;
    return absl::OkStatus();
  }

  absl::Status ReadConfig(const std::string& given) {
    namespace fs = std::filesystem;
    const std::string path = folder_.empty() || given[0] == '~'
                                 ? UserPath(given)
                                 : (fs::path(folder_) / given).string();
    TANDEM_ASSIGN_OR_RETURN(const std::vector<ConfigLine> lines,
                            ReadConfigFile(path));
    const std::string parent = fs::path(path).parent_path().string();
    std::vector<std::string> own;
    for (const ConfigLine& line : lines) {
      auto of_line = Reader({line.argument}, other_names_, depth_ + 1,
                            parent.empty() ? "." : parent)
                         .Read();
      if (!of_line.ok()) {
        return absl::Status(of_line.status().code(),
                            absl::StrCat(path, ":", line.number, ": ",
                                         of_line.status().message()));
      }
      // What a file takes from another one comes before its own.
      std::vector<std::string>& to = of_line->has_config ? of_files_ : own;
      to.insert(to.end(), of_line->canonical.begin(), of_line->canonical.end());
    }
    of_files_.insert(of_files_.end(), own.begin(), own.end());
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

  const std::vector<std::string> args_;
  const std::vector<OtherFlagName>& other_names_;
  const int depth_;
  const std::string folder_;
  size_t next_ = 0;
  std::vector<std::string> of_files_;
  FlagArguments read_;
};

}  // namespace

absl::StatusOr<FlagArguments> ReadFlagArguments(
    int argc, char** argv, const std::vector<OtherFlagName>& other_names) {
  std::vector<std::string> arguments(argv, argv + argc);
  std::string program;
  if (!arguments.empty()) {
    program = arguments.front();
    arguments.erase(arguments.begin());
  }
  TANDEM_ASSIGN_OR_RETURN(FlagArguments read,
                          Reader(std::move(arguments), other_names).Read());
  read.canonical.insert(read.canonical.begin(), std::move(program));
  return read;
}

}  // namespace tandem
