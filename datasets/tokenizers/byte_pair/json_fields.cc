#include "datasets/tokenizers/byte_pair/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

}  // namespace

const Json& JsonField(const Json& object, const char* name) {
  static const auto* const nothing = new Json;
  const auto found = object.find(name);
  return object.is_object() && found != object.end() ? *found : *nothing;
}

std::string TextIn(const Json& object, const char* name) {
  const Json& field = JsonField(object, name);
  return field.is_string() ? field.get<std::string>() : "";
}

bool FlagIn(const Json& object, const char* name, bool otherwise) {
  const Json& field = JsonField(object, name);
  return field.is_boolean() ? field.get<bool>() : otherwise;
}

}  // namespace tandem
