// Transformer of a job: a model that has a config.json, as Hugging Face's
// libraries know it.

#ifndef TANDEM_TOOLS_TRAINER_JOB_TRANSFORMER_H_
#define TANDEM_TOOLS_TRAINER_JOB_TRANSFORMER_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/hugging_face/model_config.h"
#include "models/transformer/sizes.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

struct Transformer {
  TransformerOptions model;
  // config.json, as it was, or as it would be, with --dropout where that is
  // given.
  std::string config;
  std::string note;          // see ModelConfig
  bool from_folder = false;  // of --init_from; else --model's name says it
  // generation_config.json beside it; empty: there is none.
  std::string generation_config = "";
};

// --layers, --width and so on.
TransformerSizes RequestedSizes(const TrainOptions& options);

// The model of a folder's config.json, with the generation_config.json beside
// it. Errors name the file.
absl::StatusOr<Transformer> ReadTransformer(const std::string& config_file);

// The one of a --model that has one; nothing for another.
std::optional<Transformer> NamedTransformer(absl::string_view name);

// What the job trains: the model of --init_from where that is a folder
// (InvalidArgument for a --model beside it that is another one), else --model,
// of which there is nothing to say unless it is a transformer: what ends a text
// is then what ends the documents of --dataset=tokens.
absl::StatusOr<std::optional<Transformer>> JobTransformer(
    const TrainOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_TRANSFORMER_H_
