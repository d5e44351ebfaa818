// Bytes of a text that an evaluation predicts, for bits per byte: a loss that
// models with different tokenizers can be compared by.

#ifndef TANDEM_TOOLS_TRAINER_EVALUATION_TEXT_BYTES_H_
#define TANDEM_TOOLS_TRAINER_EVALUATION_TEXT_BYTES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// The bytes of the targets of `data`'s first `samples` samples, tokens of
// `tokenizer`: those of each token by itself, whether or not they are whole
// characters. A special token is no text and has none; a target that is left
// out (kNoTarget) has none. Reads all of these targets. Errors of `data`.
absl::StatusOr<int64_t> PredictedBytes(const Dataset& data, int64_t samples,
                                       const Tokenizer& tokenizer);

// `loss`, a mean over `predictions` tokens in nats, as bits for each of the
// `bytes` of these tokens.
double BitsPerByte(double loss, int64_t predictions, int64_t bytes);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATION_TEXT_BYTES_H_
