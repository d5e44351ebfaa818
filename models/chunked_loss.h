// Chunked loss: cross entropy over a large vocabulary in chunks of tokens, so
// that no tensor of batch x length x vocabulary is made
// (models/functions/cross_entropy/linear_cross_entropy_function.h). The head
// hands its weight on to the loss instead of computing logits.

#ifndef TANDEM_MODELS_CHUNKED_LOSS_H_
#define TANDEM_MODELS_CHUNKED_LOSS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"

namespace tandem {

// The model whose last layer, a linear one without bias (tied or not), gives
// its input on, and leaves its weight for the loss under the weight's full
// name. State names and initial values are the model's. InvalidArgument where
// the last layer is not linear; making the layer throws c10::ValueError where
// it has a bias.
absl::StatusOr<LayerSpecs> WithoutLogits(LayerSpecs specs);

// CrossEntropy (models/classification_loss.h) of such a model, within rounding:
// of what its last layer is given, [n, tokens, width], and the weight that it
// has left as `head_weight` ("lm_head.weight"), `chunk` tokens at a time, 1 or
// more. With an `ignore_index` it is CrossEntropyIgnoring.
LossFunction ChunkedCrossEntropy(
    const std::string& head_weight, int64_t chunk,
    std::optional<int64_t> ignore_index = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_MODELS_CHUNKED_LOSS_H_
