// The "pre_tokenizer" of a tokenizer.json.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_PRE_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_PRE_TOKENIZER_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/byte_pair/splitter.h"

namespace tandem {

struct PreTokenizer {
  std::vector<Splitter> splitters;  // one after the other
  // Whether a text that begins with no space gets one ("add_prefix_space").
  bool space_first = false;
};

// ByteLevel, alone or as the last of a Sequence after Split (of "behavior"
// Isolated, or Removed with "invert") and Digits. InvalidArgument, with the
// name of what it is, for everything else, and for an expression that would be
// read otherwise here (oniguruma.h) or can match no character.
absl::StatusOr<PreTokenizer> ReadPreTokenizer(const nlohmann::json& json);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_PRE_TOKENIZER_H_
