#include "tools/generation/model_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "models/hugging_face/model_config.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<int64_t>> FileEndTokens(const std::string& text,
                                                   const char* name) {
  if (text.empty()) return std::vector<int64_t>();
  auto ends = ReadEndTokens(text);
  if (ends.ok()) return ends;
  return Annotate(ends.status(), name);
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> AllEndTokens(
    const std::string& config, const std::string& generation_config,
    const Tokenizer* tokenizer, int64_t vocabulary) {
  std::vector<int64_t> ends;
  const auto add = [&](int64_t end) {
    const bool is_new = !absl::c_linear_search(ends, end);
    if (is_new && end < vocabulary) ends.push_back(end);
  };
  for (const auto& [text, name] :
       {std::pair(&config, kConfigFile),
        std::pair(&generation_config, kGenerationConfigFile)}) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> configured,
                            FileEndTokens(*text, name));
    for (const int64_t end : configured) add(end);
  }
  if (tokenizer != nullptr && tokenizer->end_of_text()) {
    add(int64_t{*tokenizer->end_of_text()});
  }
  return ends;
}

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
