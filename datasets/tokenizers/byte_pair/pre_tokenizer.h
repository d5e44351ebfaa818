// The "pre_tokenizer" of a tokenizer.json.
//
// Oniguruma's expressions, which those of a tokenizer.json are, and PCRE2's,
// which read them here: where the two differ.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_PRE_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_PRE_TOKENIZER_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasets/tokenizers/byte_pair/splitter.h"

namespace tandem {

// InvalidArgument, which names it and what to write instead, for what both take
// and understand otherwise, so that a text would be cut otherwise without a
// word: x{1,3}+ (again and again, and not possessive), x{3}? and x{,3}, ^ and $
// (of each line), \b, \w, \p without braces, a [ within brackets, and options
// but (?i:...).
absl::Status CheckReadAlike(absl::string_view pattern);

struct PreTokenizer {
  std::vector<Splitter> splitters;  // one after the other
  // Whether a text that begins with no space gets one ("add_prefix_space").
  bool space_first = false;
};

// ByteLevel, alone or as the last of a Sequence after Split (of "behavior"
// Isolated, or Removed with "invert") and Digits. InvalidArgument, with the
// name of what it is, for everything else, and for an expression that would be
// read otherwise here (CheckReadAlike) or can match no character.
absl::StatusOr<PreTokenizer> ReadPreTokenizer(const nlohmann::json& json);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_PRE_TOKENIZER_H_
