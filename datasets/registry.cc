#include "datasets/registry.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/edit_distance.h"
#include "core/base/registry.h"
#include "core/base/status_macros.h"
#include "datasets/mnist.h"
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
  return OpenMnist(folder, options.split, kFashionMnistPixels);
}

DatasetOrError MakeMnist(const DatasetOptions& options) {
  if (options.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "mnist needs a data_dir, the folder of its four IDX files; "
        "only fashion_mnist comes with the program");
  }
  return OpenMnist(options.data_dir, options.split, kMnistPixels);
}

DatasetOrError MakeImages(const DatasetOptions& options) {
  return MakeSyntheticImages({options.image_shape, options.classes,
                              LengthOr(options, 10240), options.seed,
                              options.split});
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
                      {"fashion_mnist", MakeFashionMnist},
                      {"mnist", MakeMnist},
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
        "unknown data set '", options.name, "'; known are ",
        absl::StrJoin(known, ", "),
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
