// Rules of what data is trained on.

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "tools/trainer/settings/option_rules.h"

namespace tandem {
namespace {

// Whether images are decoded and transformed.
bool HasPixels(const std::string& dataset) {
  return dataset == "image_folder" || dataset == "cifar10" ||
         dataset == "cifar100";
}

// Whether it is one of the trainer's own without images of that kind.
bool HasNoPixels(const std::string& dataset) {
  const std::vector<std::string> own = {
      "fashion_mnist",    "mnist", "npy", "synthetic",
      "synthetic_tokens", "tokens"};
  return std::find(own.begin(), own.end(), dataset) != own.end();
}

absl::Status CheckImages(const TrainOptions& options) {
  const SettingValues given =
      Differing(Describe(options.images), Describe(ImageSettings()));
  if (!given.empty() && HasNoPixels(options.dataset)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", given.front().first, "=", ToText(given.front().second),
        " is for --dataset=image_folder, cifar10 and cifar100, but --dataset=",
        options.dataset, " was given"));
  }
  const absl::Status images =
      CheckImageOptions(RequestedImageOptions(options.images));
  return images.ok()
             ? images
             : absl::InvalidArgumentError(absl::StrCat("--", images.message()));
}

// --tokens_per_step, which is given.
absl::Status CheckBudget(const TrainOptions& options) {
  const std::string& dataset = options.dataset;
  const int64_t context = ResolvedContext(options);
  const int64_t samples = options.tokens_per_step / context;
  const std::string given =
      absl::StrCat("--tokens_per_step=", options.tokens_per_step);
  const absl::Status divides = CheckTokensPerStep(options, /*replicas=*/1);
  return CheckRules({
      {dataset != "tokens" && dataset != "synthetic_tokens",
       absl::StrCat(given,
                    " is for --dataset=tokens and synthetic_tokens, but "
                    "--dataset=",
                    dataset, " was given: give --batch_size=SAMPLES")},
      {!divides.ok(), std::string(divides.message())},
      {options.batch_size.value_or(samples) != samples,
       absl::StrCat(given, " is ", samples, " samples of ", context,
                    " tokens, but --batch_size=", ResolvedBatchSize(options),
                    " was given: give one")},
  });
}

}  // namespace

absl::Status CheckBatch(const TrainOptions& options) {
  if (options.tokens_per_step > 0) TANDEM_RETURN_IF_ERROR(CheckBudget(options));
  const int64_t parts = options.ddp.gradient_accumulation_steps;
  const int64_t size = options.pipeline.microbatch_size;
  return CheckRules({
      {parts > 1 && size > 0,
       absl::StrCat("--gradient_accumulation_steps=", parts,
                    " and --microbatch_size=", size,
                    " both say how a rank's batch is cut: give one")},
  });
}

// What registered data sets go by is not known: the rules are those of the
// trainer's own.
absl::Status CheckData(const TrainOptions& options) {
  const std::string& dataset = options.dataset;
  const std::string was_given =
      absl::StrCat("but --dataset=", dataset, " was given");
  const bool is_mnist = dataset == "fashion_mnist" || dataset == "mnist";
  const bool is_tokens = dataset == "tokens";
  const bool made_up_tokens = dataset == "synthetic_tokens";
  const bool has_pixels = HasPixels(dataset);
  const bool is_npy = dataset == "npy";
  const bool has_images = is_mnist || has_pixels || dataset == "synthetic";
  const bool has_shape = !options.synthetic_shape.empty();
  const int64_t bytes = options.token_bytes;
  TANDEM_RETURN_IF_ERROR(CheckImages(options));
  return CheckRules({
      {(has_shape || options.synthetic_samples > 0) &&
           (is_mnist || has_pixels || is_tokens || is_npy),
       absl::StrCat("--synthetic_shape and --synthetic_samples are for "
                    "--dataset=synthetic and synthetic_tokens, ",
                    was_given)},
      {options.synthetic_classes != TrainOptions().synthetic_classes &&
           (is_mnist || has_pixels || is_tokens || is_npy || made_up_tokens),
       absl::StrCat("--synthetic_classes=", options.synthetic_classes,
                    " is for --dataset=synthetic, ", was_given)},
      {!options.data_dir.empty() && (dataset == "synthetic" || made_up_tokens),
       absl::StrCat("--data_dir=", options.data_dir,
                    " was given, but --dataset=", dataset,
                    " is made up and reads no files")},
      {options.vocabulary > 0 && (has_images || made_up_tokens),
       absl::StrCat("--vocabulary=", options.vocabulary,
                    " is for --dataset=tokens, ", was_given)},
      {options.context > 0 && (has_images || is_npy || has_shape),
       absl::StrCat("--context=", options.context,
                    " is for --dataset=tokens and synthetic_tokens, without "
                    "--synthetic_shape, ",
                    was_given,
                    has_images || is_npy ? "" : ", with --synthetic_shape")},
      {made_up_tokens && options.synthetic_shape.size() > 1,
       absl::StrCat(
           "--synthetic_shape=", absl::StrJoin(options.synthetic_shape, ","),
           ": --dataset=synthetic_tokens takes one number, the "
           "context length")},
      {bytes != 0 && bytes != 2 && bytes != 4,
       absl::StrCat("--token_bytes=", bytes,
                    ": expected 2 or 4, or 0 for what the files say")},
      {bytes != 0 && !is_tokens,
       absl::StrCat("--token_bytes=", bytes, " is for --dataset=tokens, ",
                    was_given)},
      {options.document_masks && !is_tokens,
       absl::StrCat("--document_masks is for --dataset=tokens, ", was_given)},
      {options.end_of_text >= 0 && !options.document_masks,
       absl::StrCat("--end_of_text=", options.end_of_text,
                    " tells documents apart for --document_masks: give that, "
                    "too, or leave it out")},
      {options.misclassified_images > 0 && (is_tokens || made_up_tokens),
       absl::StrCat("--misclassified_images=", options.misclassified_images,
                    " shows images, ", was_given)},
  });
}

}  // namespace tandem
