#include "datasets/tokenizers/post_processor.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/byte_pair/json_fields.h"
#include "datasets/tokenizers/byte_pair/vocabulary.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

absl::Status Refuse(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("its post_processor ", what));
}

// The numbers of a special token that a template names.
absl::Status AppendToken(const Json& names, const Json& part,
                         std::vector<uint32_t>* tokens) {
  const std::string name = TextIn(FieldOf(part, "SpecialToken"), "id");
  const Json& numbers = FieldOf(FieldOf(names, name.c_str()), "ids");
  if (name.empty() || !numbers.is_array()) {
    return Refuse(absl::StrCat("names the token '", name,
                               "', whose ids it does not say"));
  }
  for (const Json& number : numbers) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= kMostTokens) {
      return Refuse(absl::StrCat("says ids of '", name, "' that are none"));
    }
    tokens->push_back(number.get<uint32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const Json& json, PrefixAndSuffix* around) {
  bool text = false;
  for (const Json& part : FieldOf(json, "single")) {
    if (!FieldOf(part, "Sequence").is_null()) {
      if (text) return Refuse("has the text twice");
      text = true;
      continue;
    }
    TANDEM_RETURN_IF_ERROR(
        AppendToken(FieldOf(json, "special_tokens"), part,
                    text ? &around->suffix : &around->prefix));
  }
  return text ? absl::OkStatus() : Refuse("has no place for the text");
}

}  // namespace

absl::StatusOr<PrefixAndSuffix> ReadPostProcessor(const Json& json) {
  const bool sequence = TextIn(json, "type") == "Sequence";
  const Json& list = sequence ? FieldOf(json, "processors") : json;
  PrefixAndSuffix around;
  int templates = 0;
  for (const Json& part : sequence ? list : Json::array({json})) {
    const std::string type = TextIn(part, "type");
    if (part.is_null() || type == "ByteLevel") continue;
    if (type != "TemplateProcessing" || ++templates > 1) {
      return Refuse(absl::StrCat("is ", type,
                                 "; expected ByteLevel and at most one "
                                 "TemplateProcessing"));
    }
    TANDEM_RETURN_IF_ERROR(ReadTemplate(part, &around));
  }
  return around;
}

}  // namespace tandem
