#include "tools/trainer/job/data.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "datasets/registry.h"
#include "datasets/targets_as_inputs.h"
#include "models/vocab_parallel.h"

namespace tandem {
namespace {

absl::StatusOr<std::shared_ptr<const Dataset>> OpenSplit(
    const TrainOptions& options, Split split) {
  DatasetOptions data;
  data.name = options.dataset;
  data.split = split;
  data.data_dir = options.data_dir;
  data.seed = options.seed;
  data.classes = options.synthetic_classes;
  data.length = split == Split::kTrain ? options.synthetic_samples
                                       : (options.synthetic_samples + 7) / 8;
  if (options.context > 0) data.context = options.context;
  data.vocabulary = options.vocabulary;
  data.document_masks = options.document_masks;
  data.end_of_text = options.end_of_text;
  if (!options.synthetic_shape.empty()) {
    data.image_shape = options.synthetic_shape;
    data.context = options.synthetic_shape.front();
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> dataset = MakeDataset(data);
  if (dataset.ok()) {
    return options.vocab_parallel == 1
               ? dataset
               : TargetsAsInputs(*std::move(dataset), kVocabTargets);
  }
  return Annotate(
      dataset.status(),
      absl::StrCat(
          "--dataset=", options.dataset,
          options.data_dir.empty() ? "" : " --data_dir=" + options.data_dir));
}

// What ranks can tell of their data sets, which may be files of their own.
NamedValues DescribeData(const JobData& data) {
  return {{"the training set's size", absl::StrCat(data.train->size())},
          {"the test set's size", absl::StrCat(data.test->size())},
          {"a sample's shape", absl::StrJoin(data.train->input_shape(), "x")},
          {"the number of classes", absl::StrCat(data.train->classes())}};
}

}  // namespace

absl::StatusOr<JobData> OpenData(const TrainOptions& options,
                                 Communicator& world) {
  JobData data;
  TANDEM_ASSIGN_OR_RETURN(data.train, OpenSplit(options, Split::kTrain));
  TANDEM_ASSIGN_OR_RETURN(data.test, OpenSplit(options, Split::kTest));
  TANDEM_RETURN_IF_ERROR(AgreeInGroup(DescribeData(data), "data sets", world));
  return data;
}

}  // namespace tandem
