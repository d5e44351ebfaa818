// Sampling of the next token: greedy, temperature, top-k, top-p (nucleus,
// Holtzman et al., 2019), as transformers' generate().

#ifndef TANDEM_MODELS_DECODING_SAMPLING_H_
#define TANDEM_MODELS_DECODING_SAMPLING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

struct SamplingOptions {
  // 0: greedy, the most likely token, of equal ones that of the least number.
  double temperature = 1;
  int64_t top_k = 0;  // 0: of all tokens
  double top_p = 1;
  uint64_t seed = 0;
};

// InvalidArgument for a temperature or top_k below 0, a top_p outside of (0,
// 1].
absl::Status CheckSampling(const SamplingOptions& options);

// Each token's probability to be the next, from its logits [vocabulary], of any
// floating dtype and device, by transformers' warpers in their order: logits
// over the temperature; none but the top_k largest, with those equal to the
// k-th; none but the fewest of the largest whose probability is together top_p
// or more, one at least, of equal ones those of the least numbers. In double
// precision, with a sum of 1.
//
// InvalidArgument for logits of which one is NaN or infinite, or all are -inf:
// the model has diverged. -inf itself is a probability of 0.
absl::StatusOr<std::vector<double>> TokenProbabilities(
    const at::Tensor& logits, const SamplingOptions& options);

// A token drawn by these probabilities. What is drawn is a function of the
// seed, of the position in the text, and of which of several texts it is: the
// same however often and in whatever order others are drawn. Errors as above.
absl::StatusOr<int64_t> SampleToken(const at::Tensor& logits,
                                    const SamplingOptions& options,
                                    int64_t position, int64_t sample);

}  // namespace tandem

#endif  // TANDEM_MODELS_DECODING_SAMPLING_H_
