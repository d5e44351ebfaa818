#include "tools/trainer/evaluation/text_bytes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/status_macros.h"
#include "core/model/batch.h"

namespace tandem {
namespace {

// Samples that are read at a time.
constexpr int64_t kSamplesAtOnce = 64;

// The bytes of each token, by its number.
std::vector<int64_t> TokenBytes(const Tokenizer& tokenizer) {
  std::vector<int64_t> bytes(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<int64_t>(
        tokenizer.Decode({static_cast<uint32_t>(i)}).size());
  }
  for (const SpecialToken& special : tokenizer.special_tokens()) {
    if (special.id < bytes.size()) bytes[special.id] = 0;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<int64_t> PredictedBytes(const Dataset& data, int64_t samples,
                                       const Tokenizer& tokenizer) {
  const std::vector<int64_t> bytes = TokenBytes(tokenizer);
  const auto known = static_cast<int64_t>(bytes.size());
  int64_t sum = 0;
  for (int64_t first = 0; first < samples; first += kSamplesAtOnce) {
    std::vector<int64_t> indices(
        static_cast<size_t>(std::min(kSamplesAtOnce, samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    TANDEM_ASSIGN_OR_RETURN(
        const Batch batch,
        data.Get(indices, {/*inputs=*/false, /*targets=*/true}));
    const at::Tensor targets = batch.targets.contiguous();
    const int64_t* const token = targets.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < targets.numel(); ++i) {
      if (token[i] >= 0 && token[i] < known) {
        sum += bytes[static_cast<size_t>(token[i])];
      }
    }
  }
  return sum;
}

double BitsPerByte(double loss, int64_t predictions, int64_t bytes) {
  return loss / std::log(2.0) * static_cast<double>(predictions) /
         static_cast<double>(bytes);
}

}  // namespace tandem
