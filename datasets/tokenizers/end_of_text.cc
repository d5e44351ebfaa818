#include "datasets/tokenizers/end_of_text.h"

#include <nlohmann/json.hpp>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/json_error.h"
#include "datasets/tokenizers/byte_pair/json_fields.h"
#include "datasets/tokenizers/tokenizer_files.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Null: there is none, or it cannot be read.
Json JsonIn(const std::string& path) {
  if (!IsRegularFile(path)) return nullptr;
  const auto text = ReadFile(path);
  if (!text.ok()) return nullptr;
  return Json::parse(*text, nullptr, /*allow_exceptions=*/false);
}

// A text, or an object that has it as its "content".
std::string TokenIn(const Json& config) {
  const std::string text = TextIn(config, "eos_token");
  return text.empty() ? TextIn(JsonField(config, "eos_token"), "content")
                      : text;
}

// One number, or several.
std::vector<int64_t> NumbersIn(const Json& config) {
  const Json& said = JsonField(config, "eos_token_id");
  std::vector<int64_t> numbers;
  for (const Json& each : said.is_array() ? said : Json::array({said})) {
    if (each.is_number_unsigned()) numbers.push_back(each.get<int64_t>());
  }
  return numbers;
}

std::optional<uint32_t> Called(const std::string& text,
                               const std::vector<AddedToken>& added,
                               const std::vector<std::string>& words) {
  if (text.empty()) return std::nullopt;
  for (const AddedToken& token : added) {
    if (token.text == text) return token.id;
  }
  const auto word = absl::c_find(words, text);
  if (word == words.end()) return std::nullopt;
  return static_cast<uint32_t>(word - words.begin());
}

bool IsToken(int64_t number, const std::vector<AddedToken>& added,
             const std::vector<std::string>& words) {
  if (number < 0) return false;
  if (number < static_cast<int64_t>(words.size())) return true;
  return absl::c_any_of(
      added, [&](const AddedToken& token) { return token.id == number; });
}

}  // namespace

absl::StatusOr<SaidEndOfText> ReadSaidEndOfText(const std::string& path) {
  SaidEndOfText said;
  const std::string folder = FolderThatExplains(path);
  if (folder.empty()) return said;
  const std::string config = absl::StrCat(folder, "/", kTokenizerConfig);
  const Json json = JsonIn(config);
  if (!json.is_null() && !json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config, " is no JSON object",
                     JsonError(ReadFile(config).value_or(""))));
  }
  said.text = TokenIn(json);
  for (const char* const name : {"generation_config.json", "config.json"}) {
    if (!said.numbers.empty()) break;
    said.numbers = NumbersIn(JsonIn(absl::StrCat(folder, "/", name)));
  }
  return said;
}

std::optional<uint32_t> EndOfText(const SaidEndOfText& said,
                                  const std::vector<AddedToken>& added,
                                  const std::vector<std::string>& words) {
  const auto called = Called(said.text, added, words);
  if (called) return called;
  for (const int64_t number : said.numbers) {
    if (IsToken(number, added, words)) return static_cast<uint32_t>(number);
  }
  for (const char* const name :
       {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    for (const AddedToken& token : added) {
      if (token.special && token.text == name) return token.id;
    }
  }
  return std::nullopt;
}

}  // namespace tandem
