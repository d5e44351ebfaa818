// Data sets by name.

#ifndef TANDEM_DATASETS_REGISTRY_H_
#define TANDEM_DATASETS_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datasets/dataset.h"
#include "datasets/images/image_options.h"

namespace tandem {

// What --dataset and its companions say. What a data set has no use for it
// ignores.
struct DatasetOptions {
  std::string name = "fashion_mnist";
  Split split = Split::kTrain;
  // The folder of the files. Empty: Fashion-MNIST is taken from the program's
  // runfiles; others, which do not come with it, are an error.
  std::string data_dir;

  // What becomes of the images of image_folder, cifar10 and cifar100; training
  // images are augmented by `seed`.
  ImageOptions image;

  // The synthetic data sets. `length` 0 means 10240 images or 8192 sequences
  // for training and an eighth of that for testing.
  uint64_t seed = 0;
  int64_t length = 0;
  std::vector<int64_t> image_shape = {3, 224, 224};
  int64_t classes = 10;

  // Numbers of tokens: in a sample, and how many there are; 0 means 256
  // synthetic ones, or as many as the files say, else `unsaid_vocabulary`, else
  // as many as their format has (token_sequences.h).
  int64_t context = 128;
  int64_t vocabulary = 0;
  int64_t unsaid_vocabulary = 0;
  // Options of a text's tokens: token_sequences.h.
  bool document_masks = false;
  int64_t end_of_text = -1;
  int token_bytes = 0;
};

using DatasetOpener = std::function<absl::StatusOr<std::unique_ptr<Dataset>>(
    const DatasetOptions&)>;

// Adds a data set of one's own to those that MakeDataset knows; `open` is asked
// for each split. To be called in main, before there are other threads, in
// every process of the job alike. AlreadyExists for a name that there is;
// InvalidArgument for none, or no opener.
absl::Status RegisterDataset(const std::string& name, DatasetOpener open);

// What can be asked for, sorted.
std::vector<std::string> DatasetNames();
// What was registered of it.
std::vector<std::string> RegisteredDatasets();

// Opens or makes the data set. An unknown name is an InvalidArgument error that
// lists the known ones.
absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(
    const DatasetOptions& options);

}  // namespace tandem

#endif  // TANDEM_DATASETS_REGISTRY_H_
