#include "datasets/registry.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/edit_distance.h"
#include "core/base/registry.h"
#include "core/base/status_macros.h"
#include "datasets/image_dataset.h"
#include "datasets/images/cifar.h"
#include "datasets/images/image_folder.h"
#include "datasets/mnist.h"
#include "datasets/npy_dataset.h"
#include "datasets/synthetic.h"
#include "datasets/token_sequences.h"

namespace tandem {
namespace {

using DatasetOrError = absl::StatusOr<std::unique_ptr<Dataset>>;

int64_t LengthOr(const DatasetOptions& options, int64_t train_length) {
  if (options.length != 0) return options.length;
  return options.split == Split::kTrain ? train_length : train_length / 8;
}

DatasetOrError MakeFashionMnist(const DatasetOptions& options) {
  std::string folder = options.data_dir;
  if (folder.empty()) {
    TANDEM_ASSIGN_OR_RETURN(folder, BundledFashionMnist());
  }
  return OpenMnist(folder, options.split, kFashionMnistPixels,
                   kFashionMnistClasses);
}

DatasetOrError MakeMnist(const DatasetOptions& options) {
  if (options.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "mnist needs --data_dir, the folder of its four IDX files; "
        "only fashion_mnist comes with the program");
  }
  return OpenMnist(options.data_dir, options.split, kMnistPixels);
}

DatasetOrError MakeImages(const DatasetOptions& options) {
  return MakeSyntheticImages({options.image_shape, options.classes,
                              LengthOr(options, 10240), options.seed,
                              options.split});
}

absl::Status CheckFolder(const DatasetOptions& options, const char* what) {
  if (!options.data_dir.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.name, " needs --data_dir, the folder of ", what));
}

DatasetOrError MakeFromSource(const DatasetOptions& options,
                              const ImageOptions& usual,
                              std::unique_ptr<const ImageSource> source) {
  TANDEM_ASSIGN_OR_RETURN(
      const ImageTransform transform,
      ImageTransform::Create(options.image, usual,
                             /*augment=*/options.split == Split::kTrain));
  return MakeImageDataset(std::move(source), transform, options.seed);
}

DatasetOrError OpenFolder(const DatasetOptions& options) {
  TANDEM_RETURN_IF_ERROR(
      CheckFolder(options, "train and val, with a folder for each class"));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<ImageSource> source,
      OpenImageFolder(options.data_dir, options.split == Split::kTrain));
  return MakeFromSource(options, ImageNetOptions(), std::move(source));
}

DatasetOrError OpenCifarOf(const DatasetOptions& options,
                           const CifarFormat& format,
                           const ImageOptions& usual) {
  TANDEM_RETURN_IF_ERROR(CheckFolder(options, "its binary files"));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<ImageSource> source,
      OpenCifar(options.data_dir, format, options.split == Split::kTrain));
  return MakeFromSource(options, usual, std::move(source));
}

DatasetOrError OpenCifar10(const DatasetOptions& options) {
  return OpenCifarOf(options, Cifar10(), Cifar10Options());
}

DatasetOrError OpenCifar100(const DatasetOptions& options) {
  return OpenCifarOf(options, Cifar100(), Cifar100Options());
}

DatasetOrError OpenNpy(const DatasetOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckFolder(
      options, "train_x.npy, train_y.npy, test_x.npy and test_y.npy"));
  return OpenNpyDataset({options.data_dir, options.split, options.vocabulary});
}

DatasetOrError MakeTokens(const DatasetOptions& options) {
  const int64_t vocabulary = options.vocabulary == 0 ? 256 : options.vocabulary;
  return MakeSyntheticTokens({vocabulary, options.context,
                              LengthOr(options, 8192), options.seed,
                              options.split});
}

DatasetOrError OpenTokens(const DatasetOptions& options) {
  return OpenTokenSequences({options.data_dir, options.split, options.context,
                             options.vocabulary, options.document_masks,
                             options.end_of_text, options.unsaid_vocabulary,
                             options.token_bytes});
}

Registry<DatasetOpener>& Openers() {
  static auto* const openers = new Registry<DatasetOpener>(
      "data set", {
                      {"cifar10", OpenCifar10},
                      {"cifar100", OpenCifar100},
                      {"fashion_mnist", MakeFashionMnist},
                      {"image_folder", OpenFolder},
                      {"mnist", MakeMnist},
                      {"npy", OpenNpy},
                      {"synthetic", MakeImages},
                      {"synthetic_tokens", MakeTokens},
                      {"tokens", OpenTokens},
                  });
  return *openers;
}

}  // namespace

absl::Status RegisterDataset(const std::string& name, DatasetOpener open) {
  if (name.empty() || open == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot register data set '", name, "': give it a name and an opener"));
  }
  return Openers().Add(name, std::move(open));
}

std::vector<std::string> RegisteredDatasets() { return Openers().Added(); }

std::vector<std::string> DatasetNames() { return Openers().Names(); }

DatasetOrError MakeDataset(const DatasetOptions& options) {
  const DatasetOpener* const open = Openers().Find(options.name);
  if (open == nullptr) {
    const std::vector<std::string> known = DatasetNames();
    const std::string nearest = NearestName(options.name, known);
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown data set '", options.name, "': choose one of ",
        NamesNear(options.name, known, "train --help=dataset lists all"),
        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, (*open)(options));
  if (dataset != nullptr) return dataset;
  return absl::InternalError(absl::StrCat("the opener of data set '",
                                          options.name,
                                          "' gave neither one nor an "
                                          "error"));
}

}  // namespace tandem
