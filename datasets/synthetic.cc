#include "datasets/synthetic.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "datasets/dataset.h"

namespace tandem {
namespace {

// Mixes `key` and `counter` into 64 bits that look random: the output function
// of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014) over both.
uint64_t SplitMix(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The same as a number in [0, 1), with 24 random bits.
float SplitMixUniform(uint64_t key, uint64_t counter) {
  return static_cast<float>(SplitMix(key, counter) >> 40) * 0x1p-24f;
}

constexpr int64_t kPatches = 4;  // along height, and along width
constexpr float kContrast = 0.5f;
constexpr int64_t kNoiseValues = int64_t{1} << 16;
constexpr int64_t kMaxElements = int64_t{1} << 31;

class SyntheticImages : public Dataset {
 public:
  explicit SyntheticImages(const SyntheticImagesOptions& options)
      : options_(options),
        sample_key_(SplitMix(options.seed, options.split == Split::kTrain
                                               ? kTrainSample
                                               : kTestSample)),
        pattern_key_(SplitMix(options.seed, kPattern)) {
    const std::vector<int64_t>& shape = options_.shape;
    width_ = shape.empty() ? 1 : shape.back();
    height_ = shape.size() < 2 ? 1 : shape[shape.size() - 2];
    for (size_t i = 0; i + 2 < shape.size(); ++i) channels_ *= shape[i];
    // Rows begin anywhere in the first kNoiseValues and need no wrapping.
    noise_.resize(kNoiseValues + width_);
    const uint64_t key = SplitMix(options.seed, kNoise);
    for (size_t i = 0; i < noise_.size(); ++i) {
      noise_[i] = (SplitMixUniform(key, i) - 0.5f) * 3.4641016f;  // sqrt(12)
    }
  }

  int64_t size() const override { return options_.length; }
  std::vector<int64_t> input_shape() const override { return options_.shape; }
  int64_t classes() const override { return options_.classes; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    Batch batch;
    batch.size = indices.size();
    if (parts.inputs) batch.inputs = Inputs(indices);
    if (parts.targets) batch.targets = Targets(indices);
    return batch;
  }

 private:
  // Keys of the things that are drawn.
  enum Draw : uint64_t { kNoise, kPattern, kTrainSample, kTestSample };

  uint64_t SampleKey(int64_t index) const {
    return SplitMix(sample_key_, index);
  }

  int64_t SampleLabel(int64_t index) const {
    return SplitMix(SampleKey(index), 0) % options_.classes;
  }

  at::Tensor Inputs(absl::Span<const int64_t> indices) const {
    std::vector<int64_t> shape = {static_cast<int64_t>(indices.size())};
    shape.insert(shape.end(), options_.shape.begin(), options_.shape.end());
    const at::Tensor inputs = at::empty(shape, at::kFloat);
    float* input = inputs.mutable_data_ptr<float>();
    for (int64_t index : indices) {
      input = WriteImage(SampleKey(index), SampleLabel(index), input);
    }
    return inputs;
  }

  at::Tensor Targets(absl::Span<const int64_t> indices) const {
    const int64_t count = indices.size();
    const at::Tensor targets = at::empty({count}, at::kLong);
    int64_t* target = targets.mutable_data_ptr<int64_t>();
    for (int64_t index : indices) *target++ = SampleLabel(index);
    return targets;
  }

  // Returns the end of what it wrote.
  float* WriteImage(uint64_t sample_key, int64_t label, float* out) const {
    const uint64_t label_key = SplitMix(pattern_key_, label);
    uint64_t row = 0;
    for (int64_t channel = 0; channel < channels_; ++channel) {
      for (int64_t y = 0; y < height_; ++y) {
        const int64_t first_patch =
            (channel * kPatches + y * kPatches / height_) * kPatches;
        const uint64_t bits = SplitMix(sample_key, ++row);
        WriteRow(label_key, first_patch, &noise_[bits % kNoiseValues], out);
        out += width_;
      }
    }
    return out;
  }

  void WriteRow(uint64_t label_key, int64_t first_patch, const float* noise,
                float* out) const {
    for (int64_t patch = 0; patch < kPatches; ++patch) {
      const float brightness =
          kContrast * (2 * SplitMixUniform(label_key, first_patch + patch) - 1);
      const int64_t end = (patch + 1) * width_ / kPatches;
      for (int64_t x = patch * width_ / kPatches; x < end; ++x) {
        out[x] = noise[x] + brightness;
      }
    }
  }

  const SyntheticImagesOptions options_;
  const uint64_t sample_key_;
  const uint64_t pattern_key_;
  int64_t channels_ = 1;
  int64_t height_ = 1;
  int64_t width_ = 1;
  std::vector<float> noise_;
};

absl::Status CheckShape(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) {
    if (size < 1 || size > kMaxElements / elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          "synthetic images of shape [", absl::StrJoin(shape, ", "),
          "]: each size must be at least 1 and their product at most ",
          kMaxElements));
    }
    elements *= size;
  }
  return absl::OkStatus();
}

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

absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticImages(
    const SyntheticImagesOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckShape(options.shape));
  if (options.classes < 1 || options.length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("synthetic images: ", options.classes, " classes and ",
                     options.length, " samples were asked for; there must be ",
                     "at least 1 class and 0 samples"));
  }
  return std::make_unique<SyntheticImages>(options);
}

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
