// Settings of a program as rows of a table: each stands in one place, and its
// flag, its field, its check and its text follow from there.
//
// A table is a file of lines
//   SETTING(kind, name, default, range, help)
// that is included wherever something is made of all rows, with SETTING defined
// as what is made of one. The kinds and ranges are those below.
//   GROUP("Optimizer")
// stands before the rows of a group, in which --help shows them; a group may
// stand in several places. USUAL_SETTING is a SETTING that --help shows without
// being asked for its group.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_SETTING_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_SETTING_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

using SettingValue = std::variant<bool, int64_t, double, std::string>;

// The text that is given after "--name=".
std::string ToText(const SettingValue& value);

// Names of flags, with values, in the order of their tables.
using SettingValues = std::vector<std::pair<std::string, SettingValue>>;

// Values of `given` that are not as in `usual`, the same names in the same
// order.
SettingValues Differing(const SettingValues& given, const SettingValues& usual);

// "--name=value" of the first of `values` that is one of `names`; empty: none.
std::string FirstSetting(const SettingValues& values,
                         const std::set<std::string>& names);
// The same of those that are none of `names`.
std::string FirstBut(const SettingValues& values,
                     const std::set<std::string>& names);

// What settings must not be together, and what is said where they are.
struct SettingRule {
  bool is_broken;
  std::string message;
};

// InvalidArgument with the message of the first rule that is broken.
absl::Status CheckRules(const std::vector<SettingRule>& rules);

namespace setting {

// A kind has a Flag, the type of Abseil's flag, and a Field, that of the
// struct's member. Read takes the one from the other; its errors name the flag.

template <typename T>
struct Plain {
  using Flag = T;
  using Field = T;
  static Field Of(T usual) { return usual; }
  static absl::Status Read(const char*, const T& given, T* field) {
    *field = given;
    return absl::OkStatus();
  }
  static SettingValue ToValue(const T& field) { return field; }
};

using Switch = Plain<bool>;
using Integer = Plain<int64_t>;
using Number = Plain<double>;
using Word = Plain<std::string>;

// Or none, where something else says which.
template <typename T>
struct IfGiven : Plain<std::optional<T>> {
  static SettingValue ToValue(const std::optional<T>& field) {
    if (field.has_value()) return *field;
    return std::string();
  }
};

using IntegerIfGiven = IfGiven<int64_t>;
using NumberIfGiven = IfGiven<double>;

// A number, or none for the word "auto": it is found out when the job starts.
struct IntegerOrAuto {
  using Flag = std::string;
  using Field = std::optional<int64_t>;
  static Field Of(const char* usual);  // which is one
  static absl::Status Read(const char* name, const std::string& given,
                           Field* field);
  static SettingValue ToValue(const Field& field);
};

struct Seed : Plain<uint64_t> {
  static SettingValue ToValue(uint64_t field);
};

// Relative to where the user stands.
struct Path : Word {
  static absl::Status Read(const char* name, const std::string& given,
                           std::string* field);
};

// Or the word "auto".
struct PathOrAuto : Word {
  static absl::Status Read(const char* name, const std::string& given,
                           std::string* field);
};

// Some steps in a row, counted from 1: "10-12", or "10".
struct Steps {
  int64_t first = 1;
  int64_t last = 1;

  bool operator==(const Steps& other) const {
    return first == other.first && last == other.last;
  }
};

struct StepRange {
  using Flag = std::string;
  using Field = Steps;
  static Field Of(const char* usual);  // which is one
  static absl::Status Read(const char* name, const std::string& given,
                           Field* field);
  static SettingValue ToValue(const Field& field);
};

// Several, with commas between; empty: none.
template <typename T>
struct List {
  using Flag = std::string;
  using Field = std::vector<T>;
  static Field Of(const char*) { return {}; }  // none is what is usual
  static absl::Status Read(const char* name, const std::string& given,
                           Field* field);
  static SettingValue ToValue(const Field& field);
};

using Words = List<std::string>;
using Numbers = List<double>;
using Extents = List<int64_t>;  // each at least 1

// What a value must be. Check names the flag, what was given and what it takes.

struct Any {
  template <typename T>
  absl::Status Check(const char*, const T&) const {
    return absl::OkStatus();
  }
};

class AtLeast {
 public:
  explicit AtLeast(double least) : least_(least) {}
  absl::Status Check(const char* name, double given) const;
  absl::Status Check(const char* name,
                     const std::optional<double>& given) const;

 private:
  const double least_;
};

class Between {
 public:
  Between(double least, double most) : least_(least), most_(most) {}
  absl::Status Check(const char* name, double given) const;
  absl::Status Check(const char* name,
                     const std::optional<int64_t>& given) const;

 private:
  const double least_, most_;
};

class EachBetween {
 public:
  EachBetween(double least, double most) : each_(least, most) {}
  absl::Status Check(const char* name, const std::vector<double>& given) const;

 private:
  const Between each_;
};

class OneOf {
 public:
  explicit OneOf(std::vector<std::string> known) : known_(std::move(known)) {}
  const std::vector<std::string>& known() const { return known_; }
  absl::Status Check(const char* name, const std::string& given) const;

 private:
  const std::vector<std::string> known_;
};

}  // namespace setting
}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_SETTING_H_
