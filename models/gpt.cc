#include "models/gpt.h"

#include "absl/strings/str_cat.h"
#include "models/basic_layers.h"
#include "models/gpt_block.h"
#include "models/tied_linear.h"

namespace tandem {

LayerSpecs Gpt(const GptOptions& options) {
  const InitialRule rule = GptInitialValues(options.layers);
  LayerSpecs specs = {GptTokenEmbedding("transformer.wte", options.vocabulary,
                                        options.width, rule),
                      GptPositionEmbedding("transformer.wpe", options.context,
                                           options.width, rule)};
  for (int64_t i = 0; i < options.layers; ++i) {
    specs.push_back(GptBlock(absl::StrCat("transformer.h.", i), options.width,
                             options.heads, rule));
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

LayerSpecs GptTiny() { return Gpt(GptOptions()); }

}  // namespace tandem
