#include "models/hugging_face/state_names.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kHead[] = "lm_head.weight";

StateName WithPrefix(const std::string& prefix, const std::string& stored) {
  const bool whole =
      absl::StartsWith(stored, prefix) || absl::StartsWith(stored, "lm_head.");
  return {whole ? stored : absl::StrCat(prefix, stored), ""};
}

StateName OfGpt2(const std::string& stored) {
  if (absl::EndsWith(stored, ".attn.bias") ||
      absl::EndsWith(stored, ".attn.masked_bias")) {
    return {"", "causal masks, which are computed here"};
  }
  return WithPrefix("transformer.", stored);
}

StateName OfLlama(const std::string& stored) {
  if (absl::EndsWith(stored, ".rotary_emb.inv_freq")) {
    return {"", "rotary frequencies, which are computed here"};
  }
  return WithPrefix("model.", stored);
}

bool TiesHead(const TransformerOptions& model) {
  return std::visit([](const auto& options) { return options.ties_lm_head; },
                    model);
}

}  // namespace

NameRules StateNamesOf(const TransformerOptions& model) {
  const bool is_gpt = std::holds_alternative<GptOptions>(model);
  NameRules rules;
  rules.of = is_gpt ? OfGpt2 : OfLlama;
  if (TiesHead(model)) {
    rules.tied[kHead] =
        is_gpt ? "transformer.wte.weight" : "model.embed_tokens.weight";
  }
  return rules;
}

bool IsWritten(const TransformerOptions& model, const std::string& name) {
  return name != kHead || !TiesHead(model);
}

}  // namespace tandem
