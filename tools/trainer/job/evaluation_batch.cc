#include "tools/trainer/job/evaluation_batch.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kInputBytes = int64_t{1} << 20;
constexpr int64_t kMostSamples = 256;
constexpr int64_t kLogitBytes = int64_t{256} << 20;

// Inputs are float32.
int64_t BytesOfSample(const Dataset& data) {
  int64_t bytes = sizeof(float);
  for (const int64_t size : data.input_shape()) bytes *= size;
  return std::max<int64_t>(bytes, 1);
}

// Logits are float32: as many of each token as there are classes.
int64_t LogitBytesOfSample(const Dataset& tokens) {
  return BytesOfSample(tokens) * std::max<int64_t>(tokens.classes(), 1);
}

}  // namespace

int64_t EvaluationBatchSize(const TrainOptions& options, int64_t training,
                            const Dataset& test) {
  if (options.eval_batch_size > 0) return options.eval_batch_size;
  if (test.tokens() && !options.eval_only) return training;
  if (test.tokens()) {
    const int64_t fits = kLogitBytes / LogitBytesOfSample(test);
    return std::clamp<int64_t>(fits, 1, training);
  }
  const int64_t small =
      std::min(kInputBytes / BytesOfSample(test), kMostSamples);
  return std::max(training, small);
}

}  // namespace tandem
