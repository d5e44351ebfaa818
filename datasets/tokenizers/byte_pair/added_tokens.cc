#include "datasets/tokenizers/byte_pair/added_tokens.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

namespace tandem {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    CHECK(!tokens_[i].text.empty());
    by_byte_[static_cast<uint8_t>(tokens_[i].text.front())].push_back(i);
  }
  for (std::vector<size_t>& some : by_byte_) {
    std::stable_sort(some.begin(), some.end(), [&](size_t a, size_t b) {
      return tokens_[a].text.size() > tokens_[b].text.size();
    });
  }
}

const AddedToken* AddedTokens::TokenAtBeginning(absl::string_view text,
                                                bool with_special) const {
  for (const size_t i : by_byte_[static_cast<uint8_t>(text.front())]) {
    const AddedToken& token = tokens_[i];
    if (token.special && !with_special) continue;
    if (absl::StartsWith(text, token.text)) return &token;
  }
  return nullptr;
}

std::vector<TextPart> AddedTokens::Find(absl::string_view text,
                                        bool with_special) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  const auto add_text_until = [&](size_t end) {
    if (end > done) parts.push_back({text.substr(done, end - done), {}});
  };
  for (size_t place = 0; place < text.size();) {
    const AddedToken* const token =
        TokenAtBeginning(text.substr(place), with_special);
    if (token == nullptr) {
      ++place;
      continue;
    }
    add_text_until(place);
    parts.push_back({text.substr(place, token->text.size()), token->id});
    place += token->text.size();
    done = place;
  }
  add_text_until(text.size());
  return parts;
}

}  // namespace tandem
