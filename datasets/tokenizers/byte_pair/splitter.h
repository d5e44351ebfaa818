// Pre-tokenization: a text cut into the pieces within which tokens lie, by a
// regular expression.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_SPLITTER_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_SPLITTER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// What tokenizer.json calls the behavior: what matches is a piece each and what
// lies between is one ("Isolated"); or only what matches is ("Removed", with
// "invert").
enum class SplitKeeps { kAll, kMatches };

// GPT-2's expression: contractions, words, numbers and signs with a space
// before them, white space.
extern const char kGpt2Pattern[];

// The expression is PCRE2's, which those of GPT-2, Llama 3 and their kin are;
// \s is Unicode's White_Space, as in Python's tokenizers. The Unicode is 14.0:
// letters that later versions brought are none. Matches of no character do not
// count. Thread-safe.
class Splitter {
 public:
  // InvalidArgument, with the place, for what is no expression or has a meaning
  // of its own here (&&, \h, \K, \R, (*...)).
  static absl::StatusOr<Splitter> Create(absl::string_view pattern,
                                         SplitKeeps keeps);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  // Whether the expression can match where no character is.
  bool may_match_nothing() const;

  // Appends the pieces of each of `texts`, which lie in it. Requires UTF-8.
  // ResourceExhausted where the expression needs too many steps.
  absl::Status Split(absl::Span<const absl::string_view> texts,
                     std::vector<absl::string_view>* pieces) const;

 private:
  struct Compiled;
  struct Matching;
  absl::Status SplitOne(absl::string_view text, const Matching& matching,
                        std::vector<absl::string_view>* pieces) const;
  Splitter(std::unique_ptr<Compiled> compiled, SplitKeeps keeps);

  std::unique_ptr<Compiled> compiled_;
  SplitKeeps keeps_;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_SPLITTER_H_
