// Vocabulary parallelism: the last linear layer of a language model divided by
// rows, over the last stages of a pipeline (Yeung et al., "Balancing Pipeline
// Parallelism with Vocabulary Parallelism", 2411.05288).
//
// Each part is a layer, which hands its input on, and beside it, of each token,
// the five numbers that all parts so far come to
// (models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h). The
// loss reads those of the last. So nothing but a pipeline's own messages goes
// between stages, and no stage has logits of the whole vocabulary, or its
// weight.

#ifndef TANDEM_MODELS_VOCAB_PARALLEL_H_
#define TANDEM_MODELS_VOCAB_PARALLEL_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"

namespace tandem {

// Further input (Batch::further_inputs) of such a model: the batch's targets,
// which stages before the last one look at (datasets/targets_as_inputs.h).
constexpr char kVocabTargets[] = "targets";

struct VocabParallelOptions {
  int64_t parts = 2;  // 2 or more
  // Tokens whose logits are computed at a time.
  int64_t chunk = std::numeric_limits<int64_t>::max();
};

struct VocabParallelModel {
  // The last layer, "lm_head", is as many: "lm_head.0", "lm_head.1", ... whose
  // weights have the rows of its own, as even as can be. Where it is tied to a
  // token embedding, that has "weight_0", "weight_1", ... each tied to one.
  LayerSpecs specs;
  RowParts parts;  // of "lm_head.weight", and of the embedding's
};

// Initial values are those of `specs`. InvalidArgument where the last layer is
// not linear, is tied to something else than a token embedding, or has fewer
// rows than there are to be parts; making a layer throws c10::ValueError where
// the last one has a bias.
absl::StatusOr<VocabParallelModel> DivideVocabulary(
    const LayerSpecs& specs, const VocabParallelOptions& options);

// CrossEntropy (models/classification_loss.h) of such a model, within rounding,
// whose last layer was called `head` ("lm_head") before it was divided into
// `parts`. With an `ignore_index` it is CrossEntropyIgnoring. Throws
// c10::Error, on the CPU, on targets out of range; elsewhere the loss is NaN
// then.
LossFunction VocabParallelCrossEntropy(
    const std::string& head, int64_t parts,
    std::optional<int64_t> ignore_index = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_MODELS_VOCAB_PARALLEL_H_
