// Data sets by name.

#ifndef TANDEM_DATASETS_REGISTRY_H_
#define TANDEM_DATASETS_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"
#include "datasets/split.h"

namespace tandem {

// What --dataset and its companions say. What a data set has no use for it
// ignores.
struct DatasetOptions {
  std::string name = "fashion_mnist";
  Split split = Split::kTrain;
  // The folder of the files. Empty: Fashion-MNIST is taken from the program's
  // runfiles; others, which do not come with it, are an error.
  std::string data_dir;

  // The synthetic data sets. `length` 0 means 10240 images or 8192 sequences
  // for training and an eighth of that for testing.
  uint64_t seed = 0;
  int64_t length = 0;
  std::vector<int64_t> image_shape = {3, 224, 224};
  int64_t classes = 10;

  // Of tokens: in a sample, and how many there are; 0 means 256 synthetic ones,
  // or as many as the files' format has (token_sequences.h).
  int64_t context = 128;
  int64_t vocabulary = 0;
  // Of a text's tokens: token_sequences.h.
  bool document_masks = false;
  int64_t end_of_text = -1;
};

// What can be asked for, sorted.
const std::vector<std::string>& DatasetNames();

// Opens or makes the data set. An unknown name is an InvalidArgument error that
// lists the known ones.
absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(
    const DatasetOptions& options);

}  // namespace tandem

#endif  // TANDEM_DATASETS_REGISTRY_H_
