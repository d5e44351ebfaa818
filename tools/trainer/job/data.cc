#include "tools/trainer/job/data.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/program/long_task.h"
#include "datasets/input_pixels.h"
#include "datasets/registry.h"
#include "datasets/targets_as_inputs.h"
#include "models/hugging_face/model_config.h"
#include "models/vocab_parallel.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {
namespace {

constexpr int64_t kInputBytes = int64_t{1} << 20;
constexpr int64_t kMostSamples = 256;
constexpr int64_t kLogitBytes = int64_t{256} << 20;

// Inputs are float32.
int64_t BytesOfSample(const Dataset& data) {
  int64_t bytes = sizeof(float);
  for (const int64_t size : data.input_shape()) bytes *= size;
  return std::max<int64_t>(bytes, 1);
}

// Logits are float32: as many of each token as there are classes.
int64_t LogitBytesOfSample(const Dataset& tokens) {
  return BytesOfSample(tokens) * std::max<int64_t>(tokens.classes(), 1);
}

constexpr char kSampleShape[] = "sample_shape";
constexpr char kClasses[] = "classes";
constexpr char kDigest[] = "data_digest";

// The flags that say which data set it is.
std::string DescribeDataset(const TrainOptions& options) {
  return absl::StrCat(
      "--dataset=", options.dataset,
      options.data_dir.empty() ? "" : " --data_dir=" + options.data_dir);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenSplit(
    const TrainOptions& options, const std::optional<Transformer>& transformer,
    Split split) {
  DatasetOptions data;
  data.name = options.dataset;
  data.split = split;
  data.data_dir = options.data_dir;
  data.seed = options.seed;
  data.image = RequestedImageOptions(options.images);
  data.classes = options.synthetic_classes;
  data.length = split == Split::kTrain ? options.synthetic_samples
                                       : (options.synthetic_samples + 7) / 8;
  data.context = ResolvedContext(options);
  data.vocabulary = options.vocabulary;
  if (transformer.has_value() && transformer->from_folder) {
    data.unsaid_vocabulary = VocabularySize(transformer->model);
  }
  data.token_bytes = static_cast<int>(options.token_bytes);
  data.document_masks = options.document_masks;
  data.end_of_text = options.end_of_text;
  if (!options.synthetic_shape.empty()) {
    data.image_shape = options.synthetic_shape;
  }
  absl::StatusOr<std::shared_ptr<const Dataset>> dataset = MakeDataset(data);
  if (dataset.ok()) {
    return options.vocab_parallel == 1
               ? dataset
               : TargetsAsInputs(*std::move(dataset), kVocabTargets);
  }
  return Annotate(dataset.status(), DescribeDataset(options));
}

std::map<std::string, std::string> DataIdentity(const Dataset& data) {
  std::map<std::string, std::string> identity = {
      {kTrainingSamples, absl::StrCat(data.size())},
      {kSampleShape, absl::StrJoin(data.input_shape(), "x")},
      {kClasses, absl::StrCat(data.classes())}};
  const std::string digest = data.digest();
  if (!digest.empty()) identity[kDigest] = digest;
  return identity;
}

// What ranks can tell of their data sets, which may be files of their own.
NamedValues DescribeData(const JobData& data) {
  const auto& identity = data.identity;
  const auto digest = identity.find(kDigest);
  return {{"the training set's size", identity.at(kTrainingSamples)},
          {"the test set's size", absl::StrCat(data.test->size())},
          {"a sample's shape", identity.at(kSampleShape)},
          {"the number of classes", identity.at(kClasses)},
          {"the training set's digest",
           digest == identity.end() ? "" : digest->second}};
}

}  // namespace

absl::Status CheckTestSet(const TrainOptions& options, const JobData& data) {
  const std::string where = DescribeDataset(options);
  const std::string images =
      absl::StrCat("--misclassified_images=", options.misclassified_images);
  const bool shows = options.misclassified_images > 0;
  const Dataset& test = *data.test;
  return CheckRules({
      {options.eval_only && !data.has_test(),
       absl::StrCat("--eval_only: the test set of ", where,
                    " is empty: there is nothing to evaluate")},
      {shows && !data.has_test(),
       absl::StrCat(images, ": the test set of ", where,
                    " is empty: leave it out")},
      {shows && (test.tokens() || !IsImageShape(test.input_shape())),
       absl::StrCat(
           images,
           " shows images, [height, width] or [1 or 3, height, width], "
           "but samples of ",
           where, " are ", test.tokens() ? "tokens, [" : "[",
           absl::StrJoin(test.input_shape(), ", "), "]: leave it out")},
  });
}

absl::StatusOr<JobData> OpenOwnData(
    const TrainOptions& options,
    const std::optional<Transformer>& transformer) {
  JobData data;
  TANDEM_ASSIGN_OR_RETURN(data.train,
                          OpenSplit(options, transformer, Split::kTrain));
  TANDEM_ASSIGN_OR_RETURN(data.test,
                          OpenSplit(options, transformer, Split::kTest));
  data.identity = DataIdentity(*data.train);
  return data;
}

absl::StatusOr<JobData> OpenData(const TrainOptions& options,
                                 const std::optional<Transformer>& transformer,
                                 Communicator& world) {
  const LongTask preparing("opening the data",
                           LongTask::SpeaksIf(world.rank() == 0));
  TANDEM_ASSIGN_OR_RETURN(JobData data, OpenOwnData(options, transformer));
  TANDEM_RETURN_IF_ERROR(AgreeInGroup(DescribeData(data), "data sets", world));
  TANDEM_RETURN_IF_ERROR(CheckTestSet(options, data));
  return data;
}

absl::StatusOr<Batch> FirstSamples(const Dataset& data, int64_t size) {
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(size, data.size())));
  std::iota(indices.begin(), indices.end(), 0);
  return data.Get(indices);
}

int64_t EvaluationBatchSize(const TrainOptions& options, int64_t training,
                            const Dataset& test) {
  if (options.eval_batch_size > 0) return options.eval_batch_size;
  if (test.tokens() && !options.eval_only) return training;
  if (test.tokens()) {
    const int64_t fits = kLogitBytes / LogitBytesOfSample(test);
    return std::clamp<int64_t>(fits, 1, training);
  }
  const int64_t small =
      std::min(kInputBytes / BytesOfSample(test), kMostSamples);
  return std::max(training, small);
}

}  // namespace tandem
