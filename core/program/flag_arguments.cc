#include "core/program/flag_arguments.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"

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

  absl::StatusOr<FlagArguments> Read() {
    TANDEM_RETURN_IF_ERROR(ReadAll());
    return std::move(read_);
  }

 private:
  absl::Status ReadAll() {
    read_.canonical.push_back(args_.empty() ? "" : args_[0]);
    for (next_ = 1; next_ < args_.size();) {
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
  FlagArguments read_;
};

}  // namespace

bool IsAbseils(absl::string_view file) {
  return absl::StrContains(file, "absl/flags/");
}

absl::StatusOr<FlagArguments> ReadFlagArguments(int argc, char** argv) {
  return Reader(argc, argv).Read();
}

}  // namespace tandem
