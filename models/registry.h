// Model registry: models by name.

#ifndef TANDEM_MODELS_REGISTRY_H_
#define TANDEM_MODELS_REGISTRY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/transformer/sizes.h"

namespace tandem {

struct ModelOptions {
  std::string name = "cnn";  // one of KnownModels()
  // Of one sample, without the batch dimension: [channels, height, width], or
  // [tokens] for the GPTs and Llamas, or [10] for the toys; an MLP takes any.
  std::vector<int64_t> input_shape;
  int64_t classes = 0;  // for tokens, the size of the vocabulary
  bool tokens = false;  // inputs are token numbers (int64), else float32 values
  TransformerSizes sizes = {};
  bool document_masks = false;  // of a GPT or Llama: gpt.h
  double dropout = 0;           // of a GPT
};

// cnn, gpt_tiny, mlp_deep, ..., in alphabetical order.
std::vector<std::string> KnownModels();

// The layers of a model, not made yet. InvalidArgument for a name that is not
// known (the message lists those that are), for an input shape or a number of
// classes that the model cannot take (it says what it takes), and for sizes
// that it does not have. Thread-safe.
absl::StatusOr<LayerSpecs> MakeModel(const ModelOptions& options);

// Whether the model of this name takes token numbers.
bool TakesTokens(const std::string& name);

// What a named model that takes token numbers takes at most.
struct TokenLimits {
  int64_t context = 0;     // tokens of a sequence
  int64_t vocabulary = 0;  // token numbers are below it
};
// Requires TakesTokens(name).
TokenLimits TokenLimitsOf(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_MODELS_REGISTRY_H_
