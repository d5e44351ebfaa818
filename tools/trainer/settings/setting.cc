#include "tools/trainer/settings/setting.h"

#include <glog/logging.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"

namespace tandem {
namespace {

bool Parse(const std::string& text, std::string* value) {
  *value = text;
  return true;
}
bool Parse(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}
bool Parse(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value) && *value >= 1;
}

const char* Expected(const std::string*) { return "names"; }
const char* Expected(const double*) { return "numbers, such as 1,25"; }
const char* Expected(const int64_t*) {
  return "positive whole numbers, such as 3,224,224";
}

// 1000000, not 1e+06.
std::string AllDigits(double number) {
  return absl::StrFormat("%.15g", number);
}

absl::Status Refused(const char* name, double given, const std::string& range) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, "=", AllDigits(given), ": must be ", range));
}

std::string AsGiven(const std::string& name, const SettingValue& value) {
  return absl::StrCat("--", name, "=", ToText(value));
}

}  // namespace

std::string ToText(const SettingValue& value) {
  struct Texts {
    std::string operator()(bool on) const { return on ? "true" : "false"; }
    std::string operator()(int64_t number) const {
      return absl::StrCat(number);
    }
    std::string operator()(double number) const { return absl::StrCat(number); }
    std::string operator()(const std::string& text) const { return text; }
  };
  return std::visit(Texts(), value);
}

SettingValues Differing(const SettingValues& given,
                        const SettingValues& usual) {
  CHECK_EQ(given.size(), usual.size());
  SettingValues differing;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != usual[i]) differing.push_back(given[i]);
  }
  return differing;
}

std::string FirstSetting(const SettingValues& values,
                         const std::set<std::string>& names) {
  for (const auto& [name, value] : values) {
    if (names.count(name) > 0) return AsGiven(name, value);
  }
  return "";
}

std::string FirstBut(const SettingValues& values,
                     const std::set<std::string>& names) {
  for (const auto& [name, value] : values) {
    if (names.count(name) == 0) return AsGiven(name, value);
  }
  return "";
}

absl::Status CheckRules(const std::vector<SettingRule>& rules) {
  for (const SettingRule& rule : rules) {
    if (rule.is_broken) return absl::InvalidArgumentError(rule.message);
  }
  return absl::OkStatus();
}

namespace setting {

absl::Status IntegerOrAuto::Read(const char* name, const std::string& given,
                                 Field* field) {
  field->reset();
  if (given == "auto") return absl::OkStatus();
  int64_t number = 0;
  if (!absl::SimpleAtoi(given, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, "=", given, ": takes a whole number, or auto"));
  }
  *field = number;
  return absl::OkStatus();
}

IntegerOrAuto::Field IntegerOrAuto::Of(const char* usual) {
  Field field;
  CHECK(Read("usual", usual, &field).ok()) << usual;
  return field;
}

SettingValue IntegerOrAuto::ToValue(const Field& field) {
  if (field.has_value()) return *field;
  return std::string("auto");
}

// JSON's integers are signed.
SettingValue Seed::ToValue(uint64_t field) {
  if (field <= INT64_MAX) return static_cast<int64_t>(field);
  return absl::StrCat(field);
}

absl::Status Path::Read(const char*, const std::string& given,
                        std::string* field) {
  *field = given.empty() ? given : UserPath(given);
  return absl::OkStatus();
}

absl::Status PathOrAuto::Read(const char* name, const std::string& given,
                              std::string* field) {
  if (given != "auto") return Path::Read(name, given, field);
  *field = given;
  return absl::OkStatus();
}

absl::Status StepRange::Read(const char* name, const std::string& given,
                             Steps* field) {
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(given, absl::MaxSplits('-', 1));
  const bool is_range = absl::StrContains(given, '-');
  const bool is_read = Parse(ends.first, &field->first) &&
                       Parse(is_range ? ends.second : given, &field->last);
  if (is_read && field->first <= field->last) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", name, "=", given,
      ": takes a step, counted from 1, or the first and the last of some with "
      "a hyphen between them, such as 10-12"));
}

Steps StepRange::Of(const char* usual) {
  Steps steps;
  CHECK(Read("usual", usual, &steps).ok()) << usual;
  return steps;
}

SettingValue StepRange::ToValue(const Steps& field) {
  if (field.first == field.last) return absl::StrCat(field.first);
  return absl::StrCat(field.first, "-", field.last);
}

template <typename T>
absl::Status List<T>::Read(const char* name, const std::string& given,
                           Field* field) {
  field->clear();
  for (const std::string& part : std::vector<std::string>(
           absl::StrSplit(given, ',', absl::SkipEmpty()))) {
    T value;
    if (!Parse(part, &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", given, ": takes ",
                       Expected(static_cast<const T*>(nullptr)),
                       ", with commas between them"));
    }
    field->push_back(value);
  }
  return absl::OkStatus();
}

template <typename T>
SettingValue List<T>::ToValue(const Field& field) {
  return absl::StrJoin(field, ",");
}

template struct List<std::string>;
template struct List<double>;
template struct List<int64_t>;

absl::Status AtLeast::Check(const char* name, double given) const {
  if (given >= least_) return absl::OkStatus();
  return Refused(name, given, absl::StrCat("at least ", AllDigits(least_)));
}

absl::Status AtLeast::Check(const char* name,
                            const std::optional<double>& given) const {
  return given.has_value() ? Check(name, *given) : absl::OkStatus();
}

absl::Status Between::Check(const char* name, double given) const {
  if (given >= least_ && given <= most_) return absl::OkStatus();
  return Refused(
      name, given,
      absl::StrCat("from ", AllDigits(least_), " to ", AllDigits(most_)));
}

absl::Status Between::Check(const char* name,
                            const std::optional<int64_t>& given) const {
  return given.has_value() ? Check(name, static_cast<double>(*given))
                           : absl::OkStatus();
}

absl::Status EachBetween::Check(const char* name,
                                const std::vector<double>& given) const {
  for (const double one : given) {
    TANDEM_RETURN_IF_ERROR(each_.Check(name, one));
  }
  return absl::OkStatus();
}

absl::Status OneOf::Check(const char* name, const std::string& given) const {
  for (const std::string& each : known_) {
    if (given == each) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, "=", given, ": unknown; choose one of ",
                   NamesNear(given, {known_.begin(), known_.end()})));
}

}  // namespace setting
}  // namespace tandem
