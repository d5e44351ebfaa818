#include <ATen/ops/empty.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/check_indices.h"
#include "datasets/split_mix.h"
#include "datasets/synthetic.h"

namespace tandem {
namespace {

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

// A permutation of [0, size), by Fisher and Yates.
std::vector<int64_t> Shuffled(int64_t size, uint64_t key) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) {
    std::swap(order[i], order[SplitMix(key, i) % (i + 1)]);
  }
  return order;
}

class SyntheticTokens : public Dataset {
 public:
  explicit SyntheticTokens(const SyntheticTokensOptions& options)
      : options_(options),
        sample_key_(SplitMix(options.seed, options.split == Split::kTrain
                                               ? kTrainSample
                                               : kTestSample)),
        successors_(Shuffled(options.vocabulary,
                             SplitMix(options.seed, kSuccessors))) {}

  int64_t size() const override { return options_.length; }
  std::vector<int64_t> input_shape() const override {
    return {options_.context};
  }
  bool tokens() const override { return true; }
  int64_t classes() const override { return options_.vocabulary; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    Batch batch;
    batch.size = indices.size();
    if (parts.inputs) batch.inputs = Tokens(indices, /*first=*/0);
    if (parts.targets) batch.targets = Tokens(indices, /*first=*/1);
    return batch;
  }

 private:
  // Keys of the things that are drawn.
  enum Draw : uint64_t { kSuccessors, kTrainSample, kTestSample };

  // `context` tokens of each sequence, from the one with number `first` on.
  at::Tensor Tokens(absl::Span<const int64_t> indices, int64_t first) const {
    const int64_t count = indices.size();
    const at::Tensor tokens = at::empty({count, options_.context}, at::kLong);
    int64_t* out = tokens.mutable_data_ptr<int64_t>();
    for (int64_t index : indices) {
      const uint64_t key = SplitMix(sample_key_, index);
      int64_t token = SplitMix(key, 0) % options_.vocabulary;
      for (int64_t i = 0; i < first + options_.context; ++i) {
        if (i >= first) *out++ = token;
        token = Next(token, SplitMix(key, i + 1));
      }
    }
    return tokens;
  }

  int64_t Next(int64_t token, uint64_t bits) const {
    const bool any = bits % 8 == 0;
    return any ? (bits >> 3) % options_.vocabulary : successors_[token];
  }

  const SyntheticTokensOptions options_;
  const uint64_t sample_key_;
  const std::vector<int64_t> successors_;  // [vocabulary]
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticTokens(
    const SyntheticTokensOptions& options) {
  if (options.vocabulary < 1 || options.vocabulary > kMaxVocabulary ||
      options.context < 1 || options.length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("synthetic tokens: vocabulary ", options.vocabulary,
                     ", context ", options.context, ", length ", options.length,
                     "; expected a vocabulary of 1 to ", kMaxVocabulary,
                     ", a context of at least 1 and a length of at least 0"));
  }
  return std::make_unique<SyntheticTokens>(options);
}

}  // namespace tandem
