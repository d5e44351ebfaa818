// Byte pair encoding (Sennrich et al., 2016, arXiv:1508.07909) over bytes, as
// in GPT-2: vocabulary and merges as files have them, and the tokens of one
// piece of a text.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ENCODING_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ENCODING_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// Two neighbours that become one token.
struct Merge {
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t merged = 0;
};

// A piece begins as one token for each of its bytes. Of all neighbours that a
// merge takes, those of the earliest merge, of several the leftmost, become
// one, until none are left. Takes O(n log n) for n bytes. Thread-safe.
class BytePairEncoding {
 public:
  // `bytes`: each byte's token; `merges`: the earlier, the more urgent, and the
  // last of several for the same pair counts.
  BytePairEncoding(const std::array<uint32_t, 256>& bytes,
                   absl::Span<const Merge> merges);

  // Appends the tokens of `piece`.
  void Encode(absl::string_view piece, std::vector<uint32_t>* tokens) const;

 private:
  struct Ranked {
    uint32_t rank;
    uint32_t merged;
  };
  struct Part;
  struct Candidate;
  class Merging;

  const Ranked* Find(uint32_t left, uint32_t right) const;

  std::array<uint32_t, 256> bytes_;
  absl::flat_hash_map<uint64_t, Ranked> merges_;
};

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

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ENCODING_H_
