#include "tools/generation/end_tokens.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "models/hugging_face/model_config.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<int64_t>> OfFile(const std::string& text,
                                            const char* name) {
  if (text.empty()) return std::vector<int64_t>();
  auto ends = EndTokensOf(text);
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
                            OfFile(*text, name));
    for (const int64_t end : configured) add(end);
  }
  if (tokenizer != nullptr && tokenizer->end_of_text()) {
    add(int64_t{*tokenizer->end_of_text()});
  }
  return ends;
}

}  // namespace tandem
