#include "models/hugging_face/transformer_config.h"

#include <optional>

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

namespace {

Llama3RopeScaling ReadScaling(ConfigFields& rope) {
  Llama3RopeScaling scaling;
  scaling.factor = rope.Positive("factor");
  scaling.low_freq_factor = rope.Positive("low_freq_factor");
  scaling.high_freq_factor = rope.Positive("high_freq_factor");
  scaling.original_max_position_embeddings =
      rope.Size("original_max_position_embeddings", kMostTokens);
  return scaling;
}

// `rope`: rope_parameters or rope_scaling.
void ReadRope(ConfigFields& rope, LlamaOptions* options) {
  options->rope_theta = rope.Positive("rope_theta", options->rope_theta);
  const std::string key = rope.Has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.Word(key, "default");
  if (type == "llama3") {
    options->rope_scaling = ReadScaling(rope);
  } else if (type != "default") {
    rope.Refuse(key,
                "the model here knows rotary positions default and llama3");
  }
  rope.Expect("partial_rotary_factor", {1},
              "the model here turns all of a head");
}

void ReadPositions(ConfigFields& fields, LlamaOptions* options) {
  options->rope_theta = fields.Positive("rope_theta", options->rope_theta);
  auto rope = fields.Object(fields.Has("rope_parameters") ? "rope_parameters"
                                                          : "rope_scaling");
  if (!rope.has_value()) return;
  ReadRope(*rope, options);
  fields.Keep(rope->status());
}

void CheckForm(ConfigFields& fields) {
  fields.Expect("hidden_act", {"silu", "swish"}, "the activation here is silu");
  fields.Expect("sliding_window", {}, "attention here has no window");
  fields.Expect("use_sliding_window", {false}, "attention here has no window");
  fields.Expect("partial_rotary_factor", {1},
                "the model here turns all of a head");
}

}  // namespace

LlamaOptions ReadLlamaConfig(ConfigFields& fields, std::string* note) {
  LlamaOptions options;
  options.layers = fields.Size("num_hidden_layers", kMostLayers);
  options.width = fields.Size("hidden_size", kMostWidth);
  options.ffn_width = fields.Size("intermediate_size", kMostWidth);
  options.heads = fields.Size("num_attention_heads", kMostWidth);
  options.kv_heads =
      fields.Size("num_key_value_heads", kMostWidth, options.heads);
  if (fields.Has("head_dim")) {
    options.head_dim = fields.Size("head_dim", kMostWidth);
  }
  options.vocabulary = fields.Size("vocab_size", kMostTokens);
  options.context = fields.Size("max_position_embeddings", kMostTokens);
  options.rms_eps = fields.Positive("rms_norm_eps", 1e-6);
  options.initial_stddev =
      fields.Positive("initializer_range", options.initial_stddev);
  options.ties_lm_head = fields.Switch("tie_word_embeddings", false);
  options.attention_bias = fields.Switch("attention_bias", false);
  options.mlp_bias = fields.Switch("mlp_bias", false);
  ReadPositions(fields, &options);
  CheckForm(fields);
  const auto dropout = fields.Positives({"attention_dropout"});
  if (note != nullptr && !dropout.empty()) {
    *note = absl::StrCat("the model here has no dropout; its config.json has ",
                         absl::StrJoin(dropout, ", "), " to train with");
  }
  return options;
}

nlohmann::ordered_json WriteLlamaConfig(const LlamaOptions& options,
                                        const std::vector<int64_t>& ends) {
  nlohmann::ordered_json rope = {{"rope_type", "default"}};
  nlohmann::ordered_json scaling = nullptr;
  if (options.rope_scaling.has_value()) {
    const Llama3RopeScaling& given = *options.rope_scaling;
    rope = {{"rope_type", "llama3"},
            {"factor", given.factor},
            {"low_freq_factor", given.low_freq_factor},
            {"high_freq_factor", given.high_freq_factor},
            {"original_max_position_embeddings",
             given.original_max_position_embeddings}};
    scaling = rope;
  }
  rope["rope_theta"] = options.rope_theta;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", options.vocabulary},
          {"hidden_size", options.width},
          {"intermediate_size", options.ffn_width},
          {"num_hidden_layers", options.layers},
          {"num_attention_heads", options.heads},
          {"num_key_value_heads", options.kv_heads},
          {"head_dim", HeadDim(options)},
          {"hidden_act", "silu"},
          {"max_position_embeddings", options.context},
          {"initializer_range", options.initial_stddev},
          {"rms_norm_eps", options.rms_eps},
          {"rope_theta", options.rope_theta},
          {"rope_scaling", scaling},
          {"rope_parameters", rope},
          {"attention_bias", options.attention_bias},
          {"mlp_bias", options.mlp_bias},
          {"bos_token_id", nullptr},
          {"eos_token_id", TokensField(ends)},
          {"tie_word_embeddings", options.ties_lm_head}};
}

}  // namespace tandem
