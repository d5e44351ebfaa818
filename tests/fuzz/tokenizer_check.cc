#include "tests/fuzz/tokenizer_check.h"

#include <cstdint>
#include <string>
#include <vector>

#include "glog/logging.h"

namespace tandem {
namespace {

const std::string& Text() {
  static const std::string text =
      "It's  a low\nLOWER 1234 \xc3\xa9t\xc3\xa9 \xe4\xbd\xa0 "
      "\xf0\x9f\x98\x80 <|endoftext|></s> \xff\xfe ab";
  return text;
}

}  // namespace

void CheckTokenizer(const absl::StatusOr<std::unique_ptr<Tokenizer>>& made) {
  if (!made.ok()) return;
  const Tokenizer& tokenizer = **made;
  for (const auto special :
       {SpecialTokensInText::kRecognized, SpecialTokensInText::kOrdinary}) {
    const auto tokens = tokenizer.Encode(Text(), special);
    if (!tokens.ok()) continue;
    for (const uint32_t token : *tokens) {
      CHECK_LT(token, tokenizer.vocabulary_size());
    }
    tokenizer.Decode(*tokens);
  }
  tokenizer.Decode({0, 1, 2, 1u << 31, 0xffffffffu});
}

}  // namespace tandem
