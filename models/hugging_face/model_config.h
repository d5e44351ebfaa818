// Model configuration: Hugging Face's config.json of a causal language model,
// read into a model that is known here, and written.

#ifndef TANDEM_MODELS_HUGGING_FACE_MODEL_CONFIG_H_
#define TANDEM_MODELS_HUGGING_FACE_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/layer.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"

namespace tandem {

// By "model_type": gpt2, llama.
using TransformerOptions = std::variant<GptOptions, LlamaOptions>;

constexpr char kConfigFile[] = "config.json";
// The longest config.json that is read, in bytes.
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

// config.json for transformers.
std::string WriteModelConfig(const TransformerOptions& model);

// `config` as that of a folder whose weights are of this dtype ("float32"),
// with all else as it is. Requires a text that ReadModelConfig takes.
std::string WithDtype(absl::string_view config, absl::string_view dtype);

// "gpt2", "llama".
std::string ModelTypeOf(const TransformerOptions& model);
int64_t ContextOf(const TransformerOptions& model);
int64_t VocabularyOf(const TransformerOptions& model);

absl::StatusOr<LayerSpecs> LayersOf(const TransformerOptions& model);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_MODEL_CONFIG_H_
