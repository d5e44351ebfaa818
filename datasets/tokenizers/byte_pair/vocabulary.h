// Vocabulary and merges of a byte-level BPE, as files have them.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_VOCABULARY_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_VOCABULARY_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasets/tokenizers/byte_pair/encoding.h"

namespace tandem {

// More than any tokenizer has: what a file says is no reason to take more
// memory.
inline constexpr int64_t kMostTokens = int64_t{1} << 24;

struct Vocabulary {
  std::vector<std::string> words;   // by number: each token's bytes
  std::array<uint32_t, 256> bytes;  // each byte's token
  // Bytes that texts may have, and that have none.
  std::string without_token;
  std::vector<Merge> merges;
};

using WordsAndNumbers = std::vector<std::pair<std::string, int64_t>>;
using WordPairs = std::vector<std::pair<std::string, std::string>>;

// A vocabulary as JSON has it: {word: number}. InvalidArgument for anything
// else.
absl::StatusOr<WordsAndNumbers> ReadWordsAndNumbers(const nlohmann::json& json);

// From words in GPT-2's alphabet (its bytes_to_unicode), those of other
// characters as they are, and from merges of two words. InvalidArgument for
// numbers below zero or too large, for merges of words that the vocabulary does
// not have, and for a byte of ASCII without a token. Others may have none, as
// in vocabularies that were learnt from texts alone: no text in UTF-8 has C0,
// for one.
absl::StatusOr<Vocabulary> MakeVocabulary(const WordsAndNumbers& words,
                                          const WordPairs& merges);

// From words as bytes whose numbers are their ranks: any two neighbours that
// together are a word become that word, the lowest rank first (tiktoken).
absl::StatusOr<Vocabulary> MakeRankedVocabulary(const WordsAndNumbers& words);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_VOCABULARY_H_
