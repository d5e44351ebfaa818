// Fields of JSON objects that others wrote: there or not, of the right type or
// not.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_JSON_FIELDS_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_JSON_FIELDS_H_

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

// The field `name` of `object`; null where there is none, or no object.
const nlohmann::json& JsonField(const nlohmann::json& object, const char* name);

// The text in field `name`; empty where it holds none.
std::string TextIn(const nlohmann::json& object, const char* name);

// The yes or no in field `name`; `otherwise` where it holds none.
bool FlagIn(const nlohmann::json& object, const char* name, bool otherwise);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_JSON_FIELDS_H_
