// Byte pair encoding (Sennrich et al., 2016, arXiv:1508.07909) over bytes, as
// in GPT-2: the tokens of one piece of a text.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ENCODING_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ENCODING_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ENCODING_H_
