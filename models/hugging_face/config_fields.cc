#include "models/hugging_face/config_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/json_error.h"

namespace tandem {

using Json = nlohmann::json;

absl::StatusOr<ConfigFields> ConfigFields::Parse(absl::string_view text) {
  Json object = Json::parse(text.begin(), text.end(), nullptr,
                            /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is no JSON object", JsonError(text)));
  }
  return ConfigFields(std::move(object));
}

bool ConfigFields::Has(const std::string& key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

std::string ConfigFields::FieldText(const std::string& key) const {
  return object_.at(key).dump(-1, ' ', /*ensure_ascii=*/true,
                              Json::error_handler_t::replace);
}

void ConfigFields::Expected(const std::string& key, absl::string_view what) {
  status_.Update(absl::InvalidArgumentError(
      absl::StrCat("it has ",
                   Has(key) ? absl::StrCat(key, " ", FieldText(key))
                            : absl::StrCat("no ", key),
                   ", expected ", what)));
}

void ConfigFields::Refuse(const std::string& key, absl::string_view why) {
  status_.Update(absl::InvalidArgumentError(
      absl::StrCat("it has ", key, " ", FieldText(key), ", but ", why)));
}

int64_t ConfigFields::Size(const std::string& key, int64_t most,
                           std::optional<int64_t> fallback) {
  if (!Has(key) && fallback.has_value()) return *fallback;
  if (Has(key) && object_[key].is_number_unsigned()) {
    const auto value = object_[key].get<uint64_t>();
    if (value >= 1 && value <= static_cast<uint64_t>(most)) {
      return static_cast<int64_t>(value);
    }
  }
  Expected(key, absl::StrCat("a whole number from 1 to ", most));
  return 1;
}

double ConfigFields::Positive(const std::string& key,
                              std::optional<double> fallback) {
  if (!Has(key) && fallback.has_value()) return *fallback;
  if (Has(key) && object_[key].is_number()) {
    const double value = object_[key].get<double>();
    if (value > 0 && std::isfinite(value)) return value;
  }
  Expected(key, "a number greater than 0");
  return 1;
}

bool ConfigFields::Switch(const std::string& key, bool fallback) {
  if (!Has(key)) return fallback;
  if (object_[key].is_boolean()) return object_[key].get<bool>();
  Expected(key, "true or false");
  return fallback;
}

std::string ConfigFields::Word(const std::string& key,
                               const std::string& fallback) {
  if (!Has(key)) return fallback;
  if (object_[key].is_string()) return object_[key].get<std::string>();
  Expected(key, "a text");
  return fallback;
}

std::optional<ConfigFields> ConfigFields::Object(const std::string& key) {
  if (!Has(key)) return std::nullopt;
  if (object_[key].is_object()) return ConfigFields(object_[key]);
  Expected(key, "an object");
  return std::nullopt;
}

void ConfigFields::Expect(const std::string& key,
                          std::initializer_list<Json> one,
                          absl::string_view why) {
  if (!Has(key)) return;
  if (std::find(one.begin(), one.end(), object_[key]) != one.end()) return;
  Refuse(key, why);
}

absl::StatusOr<std::vector<int64_t>> ConfigFields::Tokens(
    const std::string& key) const {
  std::vector<int64_t> tokens;
  if (!Has(key)) return tokens;
  const Json& field = object_.at(key);
  for (const Json& each : field.is_array() ? field : Json::array({field})) {
    if (!each.is_number_integer()) {
      return absl::InvalidArgumentError(
          absl::StrCat("it has ", key, " ", FieldText(key),
                       ", expected a token's number, or a list of such"));
    }
    // Below 0: none, as some libraries write it.
    const auto token = each.get<int64_t>();
    if (token >= 0) tokens.push_back(token);
  }
  return tokens;
}

std::vector<std::string> ConfigFields::Positives(
    absl::Span<const char* const> names) const {
  std::vector<std::string> found;
  for (const char* name : names) {
    if (!Has(name) || !object_.at(name).is_number()) continue;
    if (object_.at(name).get<double>() <= 0) continue;
    found.push_back(absl::StrCat(name, " ", FieldText(name)));
  }
  return found;
}

nlohmann::ordered_json TokensField(const std::vector<int64_t>& tokens) {
  if (tokens.empty()) return nullptr;
  if (tokens.size() == 1) return tokens.front();
  return tokens;
}

}  // namespace tandem
