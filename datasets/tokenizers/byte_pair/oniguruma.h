// Oniguruma's expressions, which those of a tokenizer.json are, and PCRE2's,
// which read them here: where the two differ.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ONIGURUMA_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ONIGURUMA_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// InvalidArgument, which names it and what to write instead, for what both take
// and understand otherwise, so that a text would be cut otherwise without a
// word: x{1,3}+ (again and again, and not possessive), x{3}? and x{,3}, ^ and $
// (of each line), \b, \w, \p without braces, a [ within brackets, and options
// but (?i:...).
absl::Status CheckReadAlike(absl::string_view pattern);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ONIGURUMA_H_
