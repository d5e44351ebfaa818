#include "datasets/tokenizers/byte_pair_files.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/json_error.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/byte_pair/encoding.h"
#include "datasets/tokenizers/byte_pair/splitter.h"
#include "datasets/tokenizers/byte_pair_tokenizer.h"
#include "datasets/tokenizers/end_of_text.h"
#include "datasets/tokenizers/tokenizer_files.h"

namespace tandem {
namespace {

absl::StatusOr<WordPairs> ReadMerges(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  WordPairs merges;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    if (line.empty() || absl::StartsWith(line, "#version")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": '", line, "' is no merge: expected two words"));
    }
    merges.emplace_back(words[0], words[1]);
  }
  return merges;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadGpt2Files(
    const std::string& vocabulary_path, const std::string& merges_path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadFile(vocabulary_path));
  TANDEM_ASSIGN_OR_RETURN(const SaidEndOfText said,
                          ReadSaidEndOfText(vocabulary_path));
  absl::StatusOr<WordsAndNumbers> words = ReadWordsAndNumbers(
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false));
  TANDEM_ASSIGN_OR_RETURN(const WordPairs merges, ReadMerges(merges_path));
  const absl::StatusOr<Vocabulary> vocabulary =
      words.ok() ? MakeVocabulary(*words, merges)
                 : absl::StatusOr<Vocabulary>(words.status());
  if (!vocabulary.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        vocabulary_path, " cannot be used: ", vocabulary.status().message(),
        JsonError(text)));
  }
  BytePairParts parts;
  parts.vocabulary = *vocabulary;
  for (const auto& [word, number] : *words) {
    if (word != "<|endoftext|>" && word != said.text) continue;
    parts.added.push_back({word, static_cast<uint32_t>(number), true});
  }
  parts.end_of_text = EndOfText(said, parts.added, parts.vocabulary.words);
  TANDEM_ASSIGN_OR_RETURN(Splitter splitter,
                          Splitter::Create(kGpt2Pattern, SplitKeeps::kAll));
  parts.splitters.push_back(std::move(splitter));
  return MakeBytePairTokenizer(std::move(parts));
}

namespace {

absl::StatusOr<WordsAndNumbers> ReadRanks(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  WordsAndNumbers words;
  int64_t line_number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (line.empty()) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    std::string word;
    int64_t rank = 0;
    if (fields.size() != 2 || !absl::Base64Unescape(fields[0], &word) ||
        word.empty() || !absl::SimpleAtoi(fields[1], &rank)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", line_number,
                       ": expected a word in Base64 and its rank"));
    }
    words.emplace_back(std::move(word), rank);
  }
  return words;
}

std::vector<AddedToken> Special(uint32_t first,
                                const std::vector<std::string>& names) {
  std::vector<AddedToken> tokens;
  for (const std::string& name : names) {
    tokens.push_back(
        {name, first + static_cast<uint32_t>(tokens.size()), true});
  }
  return tokens;
}

// The special tokens that Llama 3.1's tokenizer.py has.
std::vector<AddedToken> Llama3Special() {
  std::vector<std::string> names = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|reserved_special_token_2|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>"};
  for (int i = 3; names.size() < 256; ++i) {
    names.push_back(absl::StrCat("<|reserved_special_token_", i, "|>"));
  }
  return Special(128000, names);
}

std::vector<AddedToken> Gpt4Special() {
  std::vector<AddedToken> tokens = Special(
      100257,
      {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"});
  tokens.push_back({"<|endofprompt|>", 100276, true});
  return tokens;
}

// tiktoken looks whole pieces up before it merges.
absl::StatusOr<BytePairParts> MakeParts(const std::string& path,
                                        const WordsAndNumbers& words,
                                        const std::string& pattern) {
  BytePairParts parts;
  parts.whole_words = true;
  absl::StatusOr<Vocabulary> vocabulary = MakeRankedVocabulary(words);
  if (!vocabulary.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be used: ", vocabulary.status().message()));
  }
  parts.vocabulary = *std::move(vocabulary);
  TANDEM_ASSIGN_OR_RETURN(Splitter splitter,
                          Splitter::Create(pattern, SplitKeeps::kAll));
  parts.splitters.push_back(std::move(splitter));
  return parts;
}

}  // namespace

const char kGpt4Pattern[] =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|)"
    R"( ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";

const char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTiktokenRanks(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const WordsAndNumbers words, ReadRanks(path));
  const char* pattern = nullptr;
  std::vector<AddedToken> added;
  std::vector<uint32_t> prefix;
  switch (words.size()) {
    case 50256:
      pattern = kGpt2Pattern;
      added = Special(50256, {"<|endoftext|>"});
      break;
    case 100256:
      pattern = kGpt4Pattern;
      added = Gpt4Special();
      break;
    case 128000:
      pattern = kLlama3Pattern;
      added = Llama3Special();
      prefix = {added.front().id};
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          path, " has ", words.size(),
          " ranks; known are 50256 (GPT-2), 100256 (GPT-4) and 128000 (Llama "
          "3): for others give a tokenizer.json"));
  }
  TANDEM_ASSIGN_OR_RETURN(BytePairParts parts, MakeParts(path, words, pattern));
  TANDEM_ASSIGN_OR_RETURN(const SaidEndOfText said, ReadSaidEndOfText(path));
  parts.added = std::move(added);
  parts.prefix = std::move(prefix);
  parts.end_of_text = EndOfText(said, parts.added, parts.vocabulary.words);
  return MakeBytePairTokenizer(std::move(parts));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTiktokenRanks(
    const std::string& path, const std::string& pattern) {
  TANDEM_ASSIGN_OR_RETURN(const WordsAndNumbers words, ReadRanks(path));
  TANDEM_ASSIGN_OR_RETURN(BytePairParts parts, MakeParts(path, words, pattern));
  return MakeBytePairTokenizer(std::move(parts));
}

}  // namespace tandem
