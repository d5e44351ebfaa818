#include "datasets/tokenizers/gpt2_files.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/json_error.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/byte_pair/vocabulary.h"
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
  parts.end_of_text = EndOfTextOf(said, parts.added, parts.vocabulary.words);
  TANDEM_ASSIGN_OR_RETURN(Splitter splitter,
                          Splitter::Create(kGpt2Pattern, SplitKeeps::kAll));
  parts.splitters.push_back(std::move(splitter));
  return MakeBytePairTokenizer(std::move(parts));
}

}  // namespace tandem
