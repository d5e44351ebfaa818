// Data sets that are computed: no files, any size, the same on every rank.

#ifndef TANDEM_DATASETS_SYNTHETIC_H_
#define TANDEM_DATASETS_SYNTHETIC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"

namespace tandem {

// Both: a sample is a pure function of (options, index). The splits share what
// there is to learn and have no sample in common.

struct SyntheticImagesOptions {
  std::vector<int64_t> shape = {3, 224, 224};  // of one sample; sizes >= 1
  int64_t classes = 10;
  int64_t length = 10240;  // samples
  uint64_t seed = 0;
  Split split = Split::kTrain;
};

// Images of noise (uniform, mean 0, variance 1) on top of their class's
// pattern: each channel is a grid of 4 x 4 patches, each a little brighter or
// darker than the others. An MLP and a CNN learn to tell them apart.
//
// Inputs: float32 [n, shape...]. Targets: int64 [n], in [0, classes).
// The last two sizes of a shape are height and width; a shape may also have one
// size, or none.
absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticImages(
    const SyntheticImagesOptions& options);

struct SyntheticTokensOptions {
  int64_t vocabulary = 256;
  int64_t context = 128;  // tokens in a sequence
  int64_t length = 8192;  // sequences
  uint64_t seed = 0;
  Split split = Split::kTrain;
};

// Sequences in which a token is followed, seven times of eight, by its one
// successor (a permutation of the vocabulary), else by any token: a model that
// has learnt this has a cross-entropy of about
// 0.38 + ln(vocabulary) / 8.
//
// Inputs: int64 [n, context]. Targets: int64 [n, context], the inputs one token
// later.
absl::StatusOr<std::unique_ptr<Dataset>> MakeSyntheticTokens(
    const SyntheticTokensOptions& options);

}  // namespace tandem

#endif  // TANDEM_DATASETS_SYNTHETIC_H_
