// Vocabulary-parallel cross entropy over ranks (Megatron-LM, 1909.08053,
// section 3): the loss of a language model whose head is divided by tensor
// parallelism (models/layers/token_embedding.h). No rank has the logits of all
// classes: ranks exchange the few numbers a token that their classes come to
// (models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h).

#ifndef TANDEM_MODELS_TENSOR_PARALLEL_LOSS_H_
#define TANDEM_MODELS_TENSOR_PARALLEL_LOSS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/loss/loss.h"

namespace tandem {

struct TensorParallelLossOptions {
  int64_t classes = 0;  // the whole vocabulary's, 1 or more
  std::optional<int64_t> ignore_index = {};
  double label_smoothing = 0;  // 0 with a chunk
  double z_loss = 0;           // 0 with a chunk
  // Tokens whose logits are computed at a time, of a model by WithoutLogits
  // (models/chunked_loss.h); 0: the model gives logits.
  int64_t chunk = 0;
  std::string head_weight = {};  // with a chunk: "lm_head.weight"
};

// Computed in a TensorParallelScope (core/model/axis/tensor_parallel.h) the
// loss of what this rank's layers give: logits of its classes, [n, tokens,
// classes / degree], or with a chunk what its head was given. Within rounding
// it is the whole model's CrossEntropy, CrossEntropyIgnoring,
// SmoothedCrossEntropy, WithZLoss (models/classification_loss.h) or
// ChunkedCrossEntropy; loss and score are the same bits on all ranks, each of
// which has the gradient of its own part. Outside of a scope it is those
// functions.
//
// Collective, in forward. Throws c10::Error on shapes that do not fit and, on
// the CPU, on targets out of range; elsewhere the loss is NaN then.
LossFunction TensorParallelCrossEntropy(
    const TensorParallelLossOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_TENSOR_PARALLEL_LOSS_H_
