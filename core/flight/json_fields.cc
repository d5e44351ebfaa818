#include "core/flight/json_fields.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// What it holds, if it is an integer of [least, most].
std::optional<int64_t> IntegerWithin(const nlohmann::json& json, int64_t least,
                                     int64_t most) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  const auto number = json.get<int64_t>();
  if (number < least || number > most) return std::nullopt;
  return number;
}

}  // namespace

absl::StatusOr<JsonFields> JsonFields::Parse(absl::string_view text,
                                             absl::string_view what) {
  Json json = Json::parse(text.begin(), text.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (json.is_object()) return JsonFields(std::move(json), "");
  return absl::InvalidArgumentError(
      absl::StrCat("this is not ", what, ": expected a JSON object"));
}

absl::Status JsonFields::Wrong(const char* key,
                               absl::string_view expected) const {
  std::string given =
      At(key).is_null() && !object_.contains(key)
          ? "is missing"
          : absl::StrCat("is ", At(key).dump(-1, ' ', true,
                                             Json::error_handler_t::replace));
  constexpr size_t kMost = 100;
  if (given.size() > kMost) given = absl::StrCat(given.substr(0, kMost), "...");
  return absl::InvalidArgumentError(
      absl::StrCat("\"", path_, key, "\" ", given, ", expected ", expected));
}

const JsonFields::Json& JsonFields::At(const char* key) const {
  static const Json* const kNone = new Json();
  const auto found = object_.find(key);
  return found == object_.end() ? *kNone : *found;
}

absl::StatusOr<std::string> JsonFields::Text(const char* key) const {
  const Json& json = At(key);
  if (!json.is_string()) return Wrong(key, "text");
  return json.get<std::string>();
}

absl::StatusOr<int64_t> JsonFields::Count(const char* key) const {
  const std::optional<int64_t> number =
      IntegerWithin(At(key), 0, std::numeric_limits<int64_t>::max());
  if (!number.has_value()) return Wrong(key, "a number from 0");
  return *number;
}

absl::StatusOr<int> JsonFields::Int(const char* key, int least,
                                    int most) const {
  const std::optional<int64_t> number = IntegerWithin(At(key), least, most);
  if (!number.has_value()) {
    return Wrong(key, absl::StrCat("a number from ", least, " to ", most));
  }
  return static_cast<int>(*number);
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Numbers(const char* key,
                                                         int64_t most) const {
  const Json& json = At(key);
  if (!json.is_array()) return Wrong(key, "a list of numbers");
  std::vector<int64_t> numbers;
  for (const Json& each : json) {
    const std::optional<int64_t> number = IntegerWithin(each, 0, most);
    if (!number.has_value()) {
      return Wrong(key, absl::StrCat("numbers from 0 to ", most));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<JsonFields>> JsonFields::Objects(
    const char* key) const {
  const Json& json = At(key);
  if (!json.is_array()) return Wrong(key, "a list of objects");
  std::vector<JsonFields> objects;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_object()) return Wrong(key, "a list of objects");
    objects.push_back(
        JsonFields(json[i], absl::StrCat(path_, key, "[", i, "].")));
  }
  return objects;
}

}  // namespace tandem
