#include "tools/trainer/evaluation/misclassified.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/drawing/markup.h"
#include "core/image_codec/image_codec.h"
#include "core/model/batch.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "core/program/interrupt.h"
#include "core/program/long_task.h"
#include "datasets/input_pixels.h"
#include "tools/trainer/evaluation/model_copy.h"

namespace tandem {
namespace {

// Samples that the model takes at a time: the same whatever the layout is, as
// the last bits of its logits may depend on it.
constexpr int64_t kSamplesAtOnce = 32;

constexpr char kTag[] = "misclassified";

absl::Status CheckPredictions(const at::Tensor& logits, const Batch& batch) {
  if (logits.dim() == 2 && logits.size(0) == batch.size && logits.size(1) > 1 &&
      batch.targets.dim() == 1 && batch.targets.scalar_type() == at::kLong) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model gives [", absl::StrJoin(logits.sizes(), ", "), "] for ",
      batch.size, " images with targets ", DescribeTensor(batch.targets),
      ": expected a logit for each class, and a class for each image, Long"));
}

// The classes of a batch, int64 [size].
absl::StatusOr<at::Tensor> Predictions(const LayerList& layers,
                                       const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(
      const Skips further,
      NamedInputs(batch, FurtherInputs(LinksByLayer(layers))));
  return CatchTorchOr([&]() -> absl::StatusOr<at::Tensor> {
    const at::NoGradGuard no_grad;
    const at::Tensor logits = Forward(layers, batch.inputs, further);
    TANDEM_RETURN_IF_ERROR(CheckPredictions(logits, batch));
    return logits.argmax(1);
  });
}

std::string ClassLabel(const Dataset& data, int64_t number) {
  const bool is_known = number >= 0 && number < data.classes();
  const std::string name = is_known ? data.ClassName(number) : "";
  return name.empty() ? absl::StrCat(number) : MarkdownCell(name);
}

std::string DescribeClasses(const std::vector<Misclassified>& found,
                            const Dataset& data) {
  if (found.empty()) return "No sample is misclassified.";
  std::string table =
      "| image | sample | class | predicted |\n|---|---|---|---|\n";
  for (size_t i = 0; i < found.size(); ++i) {
    absl::StrAppend(&table, "| ", i + 1, " | ", found[i].sample, " | ",
                    ClassLabel(data, found[i].target), " | ",
                    ClassLabel(data, found[i].predicted), " |\n");
  }
  return table;
}

std::string FlagName(const Job& job) {
  return absl::StrCat("--misclassified_images=",
                      job.options.misclassified_images);
}

}  // namespace

absl::StatusOr<std::vector<Misclassified>> FindMisclassified(
    const LayerList& layers, const Dataset& data, int64_t samples,
    int64_t most) {
  std::vector<Misclassified> found;
  for (int64_t first = 0; first < samples; first += kSamplesAtOnce) {
    if (InterruptSignal() != 0) break;
    std::vector<int64_t> indices(
        static_cast<size_t>(std::min(kSamplesAtOnce, samples - first)));
    std::iota(indices.begin(), indices.end(), first);
    TANDEM_ASSIGN_OR_RETURN(const Batch batch, data.Get(indices));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor predictions,
                            Predictions(layers, batch));
    const at::Tensor targets = batch.targets.contiguous();
    const auto* const target = targets.const_data_ptr<int64_t>();
    const auto* const predicted = predictions.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < batch.size; ++i) {
      if (target[i] == kNoTarget || predicted[i] == target[i]) continue;
      found.push_back(
          {first + i, target[i], predicted[i], batch.inputs.select(0, i)});
      if (static_cast<int64_t>(found.size()) == most) return found;
    }
  }
  return found;
}

absl::StatusOr<Summary> MisclassifiedSummary(
    const std::vector<Misclassified>& found, const Dataset& data) {
  Summary summary;
  TANDEM_RETURN_IF_ERROR(summary.AddText(kTag, DescribeClasses(found, data)));
  const std::vector<PixelStatistics> pixels = data.pixels();
  for (size_t i = 0; i < found.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor image,
                            InputPixels(found[i].input, pixels));
    TANDEM_ASSIGN_OR_RETURN(const std::string png, EncodePng(image));
    TANDEM_RETURN_IF_ERROR(summary.AddImage(absl::StrCat(kTag, "/", i + 1), png,
                                            image.size(1), image.size(2)));
  }
  return summary;
}

absl::StatusOr<std::unique_ptr<MisclassifiedImages>>
MisclassifiedImages::Create(Job& job, int64_t samples) {
  auto images = absl::WrapUnique(new MisclassifiedImages(job, samples));
  const absl::Status mine =
      job.is_rank_zero() ? images->Prepare() : absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(AgreeOnSuccess(
      mine, absl::StrCat("prepared ", FlagName(job)), *job.world));
  return images;
}

// A first sample shows whether the model is one that classifies.
absl::Status MisclassifiedImages::Prepare() {
  TANDEM_ASSIGN_OR_RETURN(layers_, MakeModelCopy(job_));
  return Annotate(
      FindMisclassified(layers_, *job_.data.test, /*samples=*/1, /*most=*/1)
          .status(),
      FlagName(job_));
}

absl::StatusOr<Summary> MisclassifiedImages::FindInCopy() const {
  const LongTask finding("looking for misclassified samples");
  const Dataset& data = *job_.data.test;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Misclassified> found,
                          FindMisclassified(layers_, data, samples_,
                                            job_.options.misclassified_images));
  if (InterruptSignal() != 0) return Summary();
  return MisclassifiedSummary(found, data);
}

absl::StatusOr<Summary> MisclassifiedImages::Find() {
  TANDEM_RETURN_IF_ERROR(UpdateModelCopy(job_, layers_));
  absl::StatusOr<Summary> found =
      job_.is_rank_zero() ? FindInCopy() : Summary();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(Annotate(found.status(), FlagName(job_)),
                     "looked for misclassified samples", *job_.world));
  return found;
}

}  // namespace tandem
