#include "tools/generation/fitting_tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr int64_t kLeastPadding = 128;
constexpr int64_t kLeastAdded = 256;

int64_t Allowance(int64_t vocabulary, int64_t least) {
  return std::max(vocabulary / 20, least);
}

}  // namespace

absl::Status CheckTokenizerFits(const Tokenizer& tokenizer, int64_t model,
                                int64_t texts) {
  const int64_t wanted = texts > 0 ? texts : model;
  const int64_t tokenizer_size = tokenizer.vocabulary_size();
  const bool is_smaller =
      tokenizer_size < wanted - Allowance(wanted, kLeastPadding);
  const bool is_larger = tokenizer.vocabulary_without_end() >
                         model + Allowance(model, kLeastAdded);
  if (!is_smaller && !is_larger) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "it has ", tokenizer_size, " tokens, but the ",
      texts > 0 && is_smaller ? "texts that the model has learnt from had "
                              : "model knows ",
      is_smaller ? wanted : model));
}

}  // namespace tandem
