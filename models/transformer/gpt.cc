#include "models/transformer/gpt.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "models/layers/basic_layers.h"
#include "models/layers/gpt_block.h"
#include "models/layers/token_embedding.h"

namespace tandem {
namespace {

absl::Status Check(const GptOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"layers", options.layers},
      {"width", options.width},
      {"heads", options.heads},
      {"context", options.context},
      {"vocabulary", options.vocabulary}};
  for (const auto& [name, size] : sizes) {
    if (size >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a GPT of ", name, " ", size, ": expected 1 or more"));
  }
  if (!(options.dropout >= 0 && options.dropout <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a GPT of dropout ", options.dropout, ": expected 0 to 1"));
  }
  if (options.width % options.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a GPT of width ", options.width, " and ", options.heads,
      " heads: each has a part of the width, so heads must divide it"));
}

}  // namespace

absl::StatusOr<LayerSpecs> Gpt(const GptOptions& options) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  const InitialRule rule = GptInitialValues(options.layers);
  const GptLayerOptions of_layers = {options.document_masks, options.dropout};
  LayerSpecs specs = {TokenEmbeddingLayer("transformer.wte", options.vocabulary,
                                          options.width, rule),
                      GptPositionEmbedding("transformer.wpe", options.context,
                                           options.width, rule, of_layers)};
  for (int64_t i = 0; i < options.layers; ++i) {
    specs.push_back(GptBlock(absl::StrCat("transformer.h.", i), options.width,
                             options.heads, rule, of_layers));
  }
  specs.push_back(LayerNormLayer("transformer.ln_f", options.width));
  if (options.ties_lm_head) {
    specs.push_back(
        TiedLinearLayer("lm_head", specs.front(), "transformer.wte.weight"));
  } else {
    specs.push_back(LinearLayer("lm_head", options.width, options.vocabulary,
                                /*bias=*/false, rule));
  }
  return specs;
}

LayerSpecs GptTiny() { return *Gpt(GptOptions()); }

GptOptions Gpt2Options() {
  GptOptions options;
  options.layers = 12;
  options.width = 768;
  options.heads = 12;
  options.context = 1024;
  options.vocabulary = 50257;
  options.ties_lm_head = true;
  return options;
}

}  // namespace tandem
