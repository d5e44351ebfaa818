// Model registry: models by name.

#ifndef TANDEM_MODELS_REGISTRY_H_
#define TANDEM_MODELS_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/transformer/sizes.h"

namespace tandem {

struct ModelOptions {
  std::string name = "cnn";  // one of KnownModels()
  // Shape of one sample, without the batch dimension: [channels, height,
  // width], or [tokens] for the GPTs and Llamas, or [10] for the toys; an MLP
  // takes any.
  std::vector<int64_t> input_shape;
  int64_t classes = 0;  // for tokens, the size of the vocabulary
  bool tokens = false;  // inputs are token numbers (int64), else float32 values
  TransformerSizes sizes = {};
  bool document_masks = false;  // of a GPT or Llama: gpt.h
  double dropout = 0;           // of a GPT
};

using ModelMaker =
    std::function<absl::StatusOr<LayerSpecs>(const ModelOptions&)>;

// What MakeModel refuses on behalf of a registered model, whose maker refuses
// the rest.
struct ModelTraits {
  // Inputs are token numbers, or float32 values; nothing: it takes either.
  std::optional<bool> tokens;
  bool has_sizes = false;  // goes by ModelOptions::sizes
};

// Adds a model of one's own to those that MakeModel knows. `make` is called
// with sizes and classes of at least 1. To be called in main, before there are
// other threads, in every process of the job alike. AlreadyExists for a name
// that there is; InvalidArgument for none, or no maker.
absl::Status RegisterModel(const std::string& name, ModelMaker make,
                           const ModelTraits& traits = {});

// cnn, gpt_tiny, mlp_deep, ..., and those registered, in alphabetical order.
std::vector<std::string> KnownModels();
// The latter alone.
std::vector<std::string> RegisteredModels();

// The layers of a model, not made yet. InvalidArgument for a name that is not
// known (the message lists those that are), for an input shape or a number of
// classes that the model cannot take (it says what it takes), and for sizes
// that it does not have. Thread-safe.
absl::StatusOr<LayerSpecs> MakeModel(const ModelOptions& options);

// Whether the model of this name is a GPT or Llama of KnownModels(), which take
// token numbers; not said of registered ones.
bool TakesTokens(const std::string& name);

// What a named model that takes token numbers takes at most.
struct TokenLimits {
  int64_t context = 0;     // tokens of a sequence
  int64_t vocabulary = 0;  // token numbers are below it
};
// Requires TakesTokens(name).
TokenLimits ModelTokenLimits(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_MODELS_REGISTRY_H_
