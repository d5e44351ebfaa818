// For tests: small transformers that ranks share, and what they are trained of.

#ifndef TANDEM_TESTS_MODELS_TRANSFORMER_TENSOR_PARALLEL_PROBLEMS_H_
#define TANDEM_TESTS_MODELS_TRANSFORMER_TENSOR_PARALLEL_PROBLEMS_H_

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/classification_loss.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/vit.h"
#include "tests/models/tensor_parallel_lab.h"

namespace tandem {

constexpr int64_t kVocabulary = 31;  // no degree divides it
constexpr int64_t kHeads = 12;       // all do

inline GptOptions SmallGpt() {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = kHeads;
  options.context = 24;
  options.vocabulary = kVocabulary;
  return options;
}

inline LlamaOptions SmallLlama(int64_t kv_heads) {
  LlamaOptions options;
  options.layers = 2;
  options.width = 20;  // heads need not divide it
  options.ffn_width = 36;
  options.heads = kHeads;
  options.kv_heads = kv_heads;
  options.head_dim = 4;
  options.context = 24;
  options.vocabulary = kVocabulary;
  return options;
}

inline VitOptions SmallVit() {
  VitOptions options;
  options.image_size = 9;
  options.patch_size = 3;
  options.in_channels = 2;
  options.layers = 2;
  options.heads = kHeads;
  options.width = 24;
  options.ffn_width = 36;
  options.classes = 5;
  return options;
}

inline at::Tensor Tokens(int64_t tokens) {
  return (at::arange(3 * tokens, at::kLong) * 11 % kVocabulary)
      .view({3, tokens});
}

inline at::Tensor Targets(int64_t tokens) {
  return (Tokens(tokens) * 5 + 1) % kVocabulary;
}

inline LossFunction TokenLoss() {
  TensorParallelLossOptions options;
  options.classes = kVocabulary;
  return TensorParallelCrossEntropy(options);
}

// Sequence parallelism needs a number of tokens that the degree divides, and
// nothing else does.
inline TensorProblem TokenProblem(const absl::StatusOr<LayerSpecs>& specs,
                                  bool sequence_parallel) {
  TensorProblem problem;
  problem.specs = *specs;
  problem.loss = TokenLoss();
  const int64_t tokens = sequence_parallel ? 12 : 7;
  problem.inputs = Tokens(tokens);
  problem.targets = Targets(tokens);
  return problem;
}

inline TensorProblem VitProblem() {
  TensorProblem problem;
  problem.specs = *Vit(SmallVit());
  problem.loss = CrossEntropy;
  problem.inputs =
      ((at::arange(3 * 2 * 81) * 37 % 101 - 50) / 25.0).view({3, 2, 9, 9});
  problem.targets = at::arange(3);
  problem.wants_input_gradient = true;
  return problem;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_MODELS_TRANSFORMER_TENSOR_PARALLEL_PROBLEMS_H_
