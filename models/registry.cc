#include "models/registry.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "models/cnn.h"
#include "models/gpt.h"
#include "models/mlp.h"
#include "models/mlp_dropout.h"
#include "models/resnet.h"
#include "models/toy.h"
#include "models/unet.h"

namespace tandem {
namespace {

using Maker = absl::StatusOr<LayerSpecs> (*)(const ModelOptions&);

absl::Status CannotTake(const ModelOptions& options, absl::string_view takes) {
  return absl::InvalidArgumentError(absl::StrCat(
      "model ", options.name, " takes ", takes, ", but the data's inputs are [",
      absl::StrJoin(options.input_shape, ", "), "] with ", options.classes,
      " classes: choose another model or data set"));
}

template <LayerSpecs (*make)(int64_t inputs, int64_t classes)>
absl::StatusOr<LayerSpecs> MakeMlp(const ModelOptions& options) {
  int64_t inputs = 1;
  for (int64_t size : options.input_shape) inputs *= size;
  return make(inputs, options.classes);
}

LayerSpecs MakeMlpDropout(int64_t inputs, int64_t classes) {
  MlpDropoutOptions options;
  options.inputs = inputs;
  options.classes = classes;
  return MlpDropout(options);
}

absl::Status CheckImages(const ModelOptions& options, int64_t least_size) {
  const std::vector<int64_t>& shape = options.input_shape;
  if (shape.size() == 3 && shape[1] >= least_size && shape[2] >= least_size) {
    return absl::OkStatus();
  }
  return CannotTake(
      options, absl::StrCat("images [channels, height, width] of at least ",
                            least_size, " x ", least_size));
}

absl::StatusOr<LayerSpecs> MakeCnn(const ModelOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckImages(options, kCnnMinSize));
  const std::vector<int64_t>& shape = options.input_shape;
  return Cnn({shape[0], shape[1], shape[2], options.classes});
}

absl::StatusOr<LayerSpecs> MakeUnetTiny(const ModelOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckImages(options, kUnetMinSize));
  return UnetTiny({options.input_shape[0], options.classes});
}

template <LayerSpecs (*make)(const ResnetOptions&)>
absl::StatusOr<LayerSpecs> MakeResnet(const ModelOptions& options) {
  if (options.input_shape.size() != 3) {
    return CannotTake(options, "images [channels, height, width]");
  }
  return make({options.input_shape[0], options.classes});
}

GptOptions TinyOptions() { return GptOptions(); }

GptOptions TinyTiedOptions() {
  GptOptions options;
  options.ties_lm_head = true;
  return options;
}

template <GptOptions (*sizes)()>
absl::StatusOr<LayerSpecs> MakeGpt(const ModelOptions& options) {
  const GptOptions gpt = sizes();
  if (options.input_shape.size() != 1 || options.input_shape[0] > gpt.context ||
      options.classes > gpt.vocabulary) {
    return CannotTake(
        options,
        absl::StrCat("token numbers [tokens], up to ", gpt.context,
                     " of them, from a vocabulary of up to ", gpt.vocabulary));
  }
  return Gpt(gpt);
}

template <LayerSpecs (*make)()>
absl::StatusOr<LayerSpecs> MakeToy(const ModelOptions& options) {
  const std::vector<int64_t> shape = {kToyInputs};
  if (options.input_shape != shape || options.classes != kToyOutputs) {
    return CannotTake(options, absl::StrCat("inputs [", kToyInputs, "] with ",
                                            kToyOutputs, " classes"));
  }
  return make();
}

const std::map<std::string, Maker>& Makers() {
  static const auto* makers = new std::map<std::string, Maker>{
      {"cnn", MakeCnn},
      {"gpt2", MakeGpt<Gpt2Options>},
      {"gpt_baby", MakeGpt<GptBabyOptions>},
      {"gpt_tiny", MakeGpt<TinyOptions>},
      {"gpt_tiny_tied", MakeGpt<TinyTiedOptions>},
      {"mlp_deep", MakeMlp<MlpDeep>},
      {"mlp_dropout", MakeMlp<MakeMlpDropout>},
      {"mlp_small", MakeMlp<MlpSmall>},
      {"mlp_wide", MakeMlp<MlpWide>},
      {"resnet18", MakeResnet<Resnet18>},
      {"resnet34", MakeResnet<Resnet34>},
      {"resnet50", MakeResnet<Resnet50>},
      {"toy", MakeToy<ToyModel>},
      {"toy_mp", MakeToy<ToyMpModel>},
      {"unet_tiny", MakeUnetTiny},
  };
  return *makers;
}

absl::Status CheckPositive(const ModelOptions& options) {
  bool positive = options.classes > 0 && !options.input_shape.empty();
  for (int64_t size : options.input_shape) positive = positive && size > 0;
  if (positive) return absl::OkStatus();
  return CannotTake(options, "sizes and classes of at least 1");
}

}  // namespace

std::vector<std::string> KnownModels() {
  std::vector<std::string> names;
  for (const auto& item : Makers()) names.push_back(item.first);
  return names;
}

absl::StatusOr<LayerSpecs> MakeModel(const ModelOptions& options) {
  const auto maker = Makers().find(options.name);
  if (maker == Makers().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown model '", options.name, "': choose one of ",
                     absl::StrJoin(KnownModels(), ", ")));
  }
  TANDEM_RETURN_IF_ERROR(CheckPositive(options));
  const bool takes_tokens = absl::StartsWith(options.name, "gpt");
  if (options.tokens != takes_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", options.name, " takes ",
        takes_tokens ? "token numbers" : "real numbers (float32)",
        ", but the data's inputs are ",
        options.tokens ? "token numbers" : "real numbers (float32)",
        ": choose another model or data set"));
  }
  return maker->second(options);
}

}  // namespace tandem
