#include "datasets/tokenizers/tokenizer_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/json_error.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/byte_pair/encoding.h"
#include "datasets/tokenizers/byte_pair/json_fields.h"
#include "datasets/tokenizers/byte_pair/pre_tokenizer.h"
#include "datasets/tokenizers/byte_pair_tokenizer.h"
#include "datasets/tokenizers/end_of_text.h"
#include "datasets/tokenizers/tokenizer_files.h"

namespace tandem {
namespace {

// What stands around a text.
struct PrefixAndSuffix {
  std::vector<uint32_t> prefix;
  std::vector<uint32_t> suffix;
};

using Json = nlohmann::json;

absl::Status RefusePostProcessor(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("its post_processor ", what));
}

// The numbers of a special token that a template names.
absl::Status AppendToken(const Json& names, const Json& part,
                         std::vector<uint32_t>* tokens) {
  const std::string name = TextIn(JsonField(part, "SpecialToken"), "id");
  const Json& numbers = JsonField(JsonField(names, name.c_str()), "ids");
  if (name.empty() || !numbers.is_array()) {
    return RefusePostProcessor(absl::StrCat("names the token '", name,
                                            "', whose ids it does not say"));
  }
  for (const Json& number : numbers) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= kMostTokens) {
      return RefusePostProcessor(
          absl::StrCat("says ids of '", name, "' that are none"));
    }
    tokens->push_back(number.get<uint32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const Json& json, PrefixAndSuffix* around) {
  bool text = false;
  for (const Json& part : JsonField(json, "single")) {
    if (!JsonField(part, "Sequence").is_null()) {
      if (text) return RefusePostProcessor("has the text twice");
      text = true;
      continue;
    }
    TANDEM_RETURN_IF_ERROR(
        AppendToken(JsonField(json, "special_tokens"), part,
                    text ? &around->suffix : &around->prefix));
  }
  return text ? absl::OkStatus()
              : RefusePostProcessor("has no place for the text");
}

// The "post_processor": none, ByteLevel (nothing), TemplateProcessing's
// "single", and a Sequence of them. InvalidArgument for any other.
absl::StatusOr<PrefixAndSuffix> ReadPostProcessor(const Json& json) {
  const bool sequence = TextIn(json, "type") == "Sequence";
  const Json& list = sequence ? JsonField(json, "processors") : json;
  PrefixAndSuffix around;
  int templates = 0;
  for (const Json& part : sequence ? list : Json::array({json})) {
    const std::string type = TextIn(part, "type");
    if (part.is_null() || type == "ByteLevel") continue;
    if (type != "TemplateProcessing" || ++templates > 1) {
      return RefusePostProcessor(
          absl::StrCat("is ", type,
                       "; expected ByteLevel and at most one "
                       "TemplateProcessing"));
    }
    TANDEM_RETURN_IF_ERROR(ReadTemplate(part, &around));
  }
  return around;
}

absl::Status Refuse(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

// "left right", or [left, right].
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(
    const Json& merge) {
  if (merge.is_string()) {
    const std::vector<std::string> words =
        absl::StrSplit(merge.get_ref<const std::string&>(), ' ');
    if (words.size() == 2) return std::make_pair(words[0], words[1]);
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return std::make_pair(merge[0].get<std::string>(),
                          merge[1].get<std::string>());
  }
  return Refuse("one of its merges is no pair of words");
}

absl::StatusOr<Vocabulary> ReadModel(const Json& model) {
  const std::string type = TextIn(model, "type");
  if (!type.empty() && type != "BPE") {
    return Refuse(absl::StrCat("its model is ", type, "; expected BPE"));
  }
  for (const char* const field :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = JsonField(model, field);
    if (!value.is_null() && value != "" && value != 0) {
      return Refuse(absl::StrCat("its model has a ", field));
    }
  }
  if (FlagIn(model, "byte_fallback", false)) {
    return Refuse(
        "its model falls back to bytes (byte_fallback): it is none "
        "of the byte level");
  }
  TANDEM_ASSIGN_OR_RETURN(const WordsAndNumbers words,
                          ReadWordsAndNumbers(JsonField(model, "vocab")));
  const Json& list = JsonField(model, "merges");
  if (!list.is_array()) return Refuse("its model has no merges");
  WordPairs merges;
  merges.reserve(list.size());
  for (const Json& each : list) {
    TANDEM_ASSIGN_OR_RETURN(merges.emplace_back(), ReadMerge(each));
  }
  return MakeVocabulary(words, merges);
}

absl::StatusOr<AddedToken> ReadAddedToken(const Json& json) {
  AddedToken token;
  token.text = TextIn(json, "content");
  const Json& number = JsonField(json, "id");
  if (token.text.empty() || !number.is_number_unsigned() ||
      number.get<uint64_t>() >= kMostTokens) {
    return Refuse("one of its added_tokens has no content or no id");
  }
  for (const char* const field : {"single_word", "lstrip", "rstrip"}) {
    if (!FlagIn(json, field, false)) continue;
    return Refuse(absl::StrCat("its added token ", token.text, " has ", field,
                               ", which is not known here"));
  }
  token.id = number.get<uint32_t>();
  token.special = FlagIn(json, "special", false);
  token.normalized = FlagIn(json, "normalized", !token.special);
  return token;
}

// Whether texts are brought to NFC; nothing else is known.
absl::StatusOr<bool> ReadNormalizer(const Json& normalizer) {
  if (normalizer.is_null()) return false;
  const bool sequence = TextIn(normalizer, "type") == "Sequence";
  const Json& list = JsonField(normalizer, "normalizers");
  bool nfc = false;
  for (const Json& part : sequence ? list : Json::array({normalizer})) {
    const std::string type = TextIn(part, "type");
    if (type != "NFC") {
      return Refuse(
          absl::StrCat("its normalizer is ", type, "; expected NFC, or none"));
    }
    nfc = true;
  }
  return nfc;
}

absl::StatusOr<BytePairParts> ReadParts(const Json& json,
                                        const SaidEndOfText& said) {
  BytePairParts parts;
  TANDEM_ASSIGN_OR_RETURN(parts.nfc,
                          ReadNormalizer(JsonField(json, "normalizer")));
  TANDEM_ASSIGN_OR_RETURN(PreTokenizer before,
                          ReadPreTokenizer(JsonField(json, "pre_tokenizer")));
  parts.splitters = std::move(before.splitters);
  parts.space_first = before.space_first;
  const Json& model = JsonField(json, "model");
  TANDEM_ASSIGN_OR_RETURN(parts.vocabulary, ReadModel(model));
  parts.whole_words = FlagIn(model, "ignore_merges", false);
  for (const Json& each : JsonField(json, "added_tokens")) {
    TANDEM_ASSIGN_OR_RETURN(parts.added.emplace_back(), ReadAddedToken(each));
  }
  parts.end_of_text = EndOfText(said, parts.added, parts.vocabulary.words);
  TANDEM_ASSIGN_OR_RETURN(PrefixAndSuffix around,
                          ReadPostProcessor(JsonField(json, "post_processor")));
  parts.prefix = std::move(around.prefix);
  parts.suffix = std::move(around.suffix);
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizerJson(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return Refuse(absl::StrCat(path, " is no JSON object", JsonError(text)));
  TANDEM_ASSIGN_OR_RETURN(const SaidEndOfText said, ReadSaidEndOfText(path));
  absl::StatusOr<BytePairParts> parts = ReadParts(json, said);
  if (parts.ok()) return MakeBytePairTokenizer(*std::move(parts));
  return absl::Status(
      parts.status().code(),
      absl::StrCat(path, " cannot be used: ", parts.status().message()));
}

}  // namespace tandem
