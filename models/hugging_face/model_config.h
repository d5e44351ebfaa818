// Model configuration: Hugging Face's config.json of a causal language model,
// read into a model that is known here, and written; names of its weights.

#ifndef TANDEM_MODELS_HUGGING_FACE_MODEL_CONFIG_H_
#define TANDEM_MODELS_HUGGING_FACE_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/layer.h"
#include "core/weights/load_plan.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"

namespace tandem {

// " (did you mean FOLDER/snapshots/HASH?)" where `folder` is one of Hugging
// Face's hub cache (models--OWNER--NAME, whose snapshots are what looks like a
// downloaded model) and has a snapshot with a config.json; else "".
std::string HubCacheHint(const std::string& folder);

// By "model_type": gpt2, llama.
using TransformerOptions = std::variant<GptOptions, LlamaOptions>;

constexpr char kConfigFile[] = "config.json";
// Defaults of transformers' generate(), beside it or not.
constexpr char kGenerationConfigFile[] = "generation_config.json";
// The longest of either that is read, in bytes.
constexpr uint64_t kMaxConfigBytes = 1 << 20;

struct ModelConfig {
  TransformerOptions model;
  std::string note;  // what it asks for and the model has not; empty: nothing
};

// InvalidArgument for a text that is no such configuration: it says which key,
// what was given and what was expected. A model that would compute something
// else than asked for is refused, never made; keys that say nothing of what it
// computes (tokenizers, defaults of generate) are passed over.
absl::StatusOr<ModelConfig> ReadModelConfig(absl::string_view text);

// config.json for transformers. `ends`: the tokens that end a text; not given:
// the model's usual ones.
std::string WriteModelConfig(
    const TransformerOptions& model,
    const std::optional<std::vector<int64_t>>& ends = std::nullopt);

// The tokens that end a text, as "eos_token_id" of a config.json or a
// generation_config.json says: one, or several; none where it does not say.
// InvalidArgument for another value, and for a text that is no JSON object.
absl::StatusOr<std::vector<int64_t>> ReadEndTokens(absl::string_view config);

// Either file's text with these of them besides its own, and all else as it is.
// Requires a text that ReadEndTokens takes.
std::string WithEndTokens(absl::string_view config,
                          const std::vector<int64_t>& ends);

// How many tokens the texts had that the model learnt from, where `config` says
// it in a field of our own, "tandem_vocabulary", which others pass over: a
// model of 50257 tokens may know a tokenizer of 8000. 0: it does not. And
// `config` with that number instead, or with 0 without one. Require JSON
// objects.
int64_t ReadTextsVocabulary(absl::string_view config);
std::string WithTextsVocabulary(absl::string_view config, int64_t vocabulary);

// `config`, a GPT-2's, of a model that is trained with this dropout.
std::string WithDropout(absl::string_view config, double dropout);

// `config` as that of a folder whose weights are of this dtype ("float32"),
// with all else as it is. Requires a text that ReadModelConfig takes.
std::string WithDtype(absl::string_view config, absl::string_view dtype);

// "gpt2", "llama".
std::string ModelType(const TransformerOptions& model);
int64_t ContextLength(const TransformerOptions& model);
int64_t VocabularySize(const TransformerOptions& model);

absl::StatusOr<LayerSpecs> LayersOf(const TransformerOptions& model);

// State names of Hugging Face's files, which are not always those of the model
// that reads them. Files of the model without its head (GPT2Model, LlamaModel;
// OpenAI's own GPT-2) lack the prefix "transformer." or "model.". Buffers that
// older versions saved are left out: GPT-2's causal masks (attn.bias,
// attn.masked_bias), Llama's rotary_emb.inv_freq. A tied lm_head.weight may be
// there or not.
NameRules StateNameRules(const TransformerOptions& model);

// Whether save_pretrained writes a tensor of the model: not so a tied head.
bool IsWritten(const TransformerOptions& model, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_MODEL_CONFIG_H_
