#include "models/hugging_face/gpt2_config.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/hugging_face/config_fields.h"

namespace tandem {
namespace {

// Ours: torch.nn.LayerNorm's.
constexpr double kLayerNormEpsilon = 1e-5;

void CheckForm(const GptOptions& options, ConfigFields& fields) {
  fields.Expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"},
                "the activation here is gelu_new");
  fields.Expect("n_inner", {4 * options.width},
                "the inner width here is 4 n_embd");
  fields.Expect("layer_norm_epsilon", {kLayerNormEpsilon},
                "LayerNorm's epsilon here is 1e-5");
  fields.Expect("scale_attn_weights", {true},
                "attention here is scaled by the root of the head's width");
  for (const char* other : {"scale_attn_by_inverse_layer_idx",
                            "reorder_and_upcast_attn", "add_cross_attention"}) {
    fields.Expect(other, {false}, "the model here has no such attention");
  }
  if (options.width % options.heads != 0) {
    fields.Refuse("n_head",
                  absl::StrCat("heads must divide n_embd, ", options.width));
  }
}

}  // namespace

GptOptions ReadGpt2Config(ConfigFields& fields, std::string* note) {
  GptOptions options;
  options.layers = fields.Size("n_layer", kMostLayers);
  options.width = fields.Size("n_embd", kMostWidth);
  options.heads = fields.Size("n_head", kMostWidth);
  options.context = fields.Size("n_positions", kMostTokens);
  options.vocabulary = fields.Size("vocab_size", kMostTokens);
  options.ties_lm_head = fields.Switch("tie_word_embeddings", true);
  if (!fields.status().ok()) return options;
  CheckForm(options, fields);
  const auto dropout = fields.Positives(kDropoutFields);
  if (note != nullptr && !dropout.empty()) {
    *note = absl::StrCat("dropout is for the job to say; its config.json has ",
                         absl::StrJoin(dropout, ", "), " to train with");
  }
  return options;
}

nlohmann::ordered_json WriteGpt2Config(
    const GptOptions& options,
    const std::optional<std::vector<int64_t>>& ends) {
  // GPT-2's <|endoftext|>, which transformers takes for granted.
  constexpr int64_t kEndOfText = 50256;
  std::vector<int64_t> usual;
  if (options.vocabulary > kEndOfText) usual.push_back(kEndOfText);
  const nlohmann::ordered_json ends_text = TokensField(ends.value_or(usual));
  const nlohmann::ordered_json begins_text =
      ends_text.is_array() ? ends_text.front() : ends_text;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", options.vocabulary},
          {"n_positions", options.context},
          {"n_embd", options.width},
          {"n_layer", options.layers},
          {"n_head", options.heads},
          {"n_inner", nullptr},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", kLayerNormEpsilon},
          {"resid_pdrop", options.dropout},
          {"embd_pdrop", options.dropout},
          {"attn_pdrop", options.dropout},
          {"bos_token_id", begins_text},
          {"eos_token_id", ends_text},
          {"tie_word_embeddings", options.ties_lm_head}};
}

}  // namespace tandem
