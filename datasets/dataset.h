// Samples that can be asked for by number.

#ifndef TANDEM_DATASETS_DATASET_H_
#define TANDEM_DATASETS_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/model/batch.h"

namespace tandem {

// Data set split: the parts of a data set.
enum class Split { kTrain, kTest };

// Which tensors of a batch are wanted: in a pipeline the first stage's rank
// needs the inputs, the last one's the targets, and those between neither.
struct BatchParts {
  bool inputs = true;
  bool targets = true;
};

// Mean and standard deviation of pixels, on a scale from 0 to 1.
struct PixelStatistics {
  float mean = 0;
  float std = 1;
};

// A map-style data set (torch.utils.data.Dataset). Thread-safe: a loader calls
// `Get` from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // 0: a test set that there is none of, of which nothing is evaluated.
  virtual int64_t size() const = 0;

  // Shape of one sample's input, without the batch dimension.
  virtual std::vector<int64_t> input_shape() const = 0;

  // Whether inputs are token numbers (int64), else float32 values.
  virtual bool tokens() const { return false; }

  // Number of classes; for tokens, the size of the vocabulary.
  virtual int64_t classes() const = 0;

  // What a class is called, such as "Ankle boot", by its number in [0,
  // classes()); empty: nothing but the number is known.
  virtual std::string ClassName(int64_t number) const { return ""; }

  // How inputs were made of images: (pixel - mean) / std of pixels from 0 to 1,
  // one for all channels or one for each. Empty: inputs are no such images.
  virtual std::vector<PixelStatistics> pixels() const { return {}; }

  // What tells these samples from others of their number and shape, such as a
  // checksum of the files; empty: nothing does. The same on all ranks, and each
  // time: an epoch that was begun goes on with the same alone.
  virtual std::string digest() const { return ""; }

  // The samples with these numbers, in this order, each in [0, size()). What is
  // not wanted is not read, and undefined.
  virtual absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                                    const BatchParts& parts) const = 0;

  // The same as they are in `epoch`: of a data set that changes its samples at
  // random, anew in each (image_dataset.h), for which Get gives those of epoch
  // 0. It is this that a loader calls. Others have the same in all epochs.
  virtual absl::StatusOr<Batch> GetInEpoch(int64_t epoch,
                                           absl::Span<const int64_t> indices,
                                           const BatchParts& parts) const {
    return Get(indices, parts);
  }

  // Inputs and targets.
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const {
    return Get(indices, BatchParts());
  }
};

// An error that names the first of `indices` outside [0, size).
inline absl::Status CheckIndices(absl::Span<const int64_t> indices,
                                 int64_t size) {
  for (int64_t index : indices) {
    if (index < 0 || index >= size) {
      return absl::OutOfRangeError(absl::StrCat(
          "sample ", index, " was asked for; the data set has ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem

#endif  // TANDEM_DATASETS_DATASET_H_
