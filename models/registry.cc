#include "models/registry.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/edit_distance.h"
#include "core/base/registry.h"
#include "core/base/status_macros.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/toy.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/vit.h"

namespace tandem {
namespace {

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

absl::Status CheckTokens(const ModelOptions& options, int64_t context,
                         int64_t vocabulary) {
  if (options.input_shape.size() == 1 && options.input_shape[0] <= context &&
      options.classes <= vocabulary) {
    return absl::OkStatus();
  }
  const absl::Status refused = CannotTake(
      options,
      absl::StrCat("token numbers [tokens], up to ", context,
                   " of them, from a vocabulary of up to ", vocabulary));
  if (!options.tokens) return refused;
  return absl::InvalidArgumentError(absl::StrCat(
      refused.message(),
      options.classes > vocabulary
          ? "; these tokens need a model with a larger vocabulary, or files "
            "that say a smaller one (--vocabulary)"
          : "; give fewer tokens a sample (--context)"));
}

absl::StatusOr<LayerSpecs> MakeGpt(const ModelOptions& options) {
  const GptOptions gpt = *GptSize(options.name);
  TANDEM_RETURN_IF_ERROR(CheckTokens(options, gpt.context, gpt.vocabulary));
  const TransformerSizes& sizes = options.sizes;
  if (sizes.kv_heads != 0 || sizes.ffn_width != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", options.name,
        " has no kv_heads and no ffn_width of its own: these are the Llamas'"));
  }
  GptOptions sized = WithSizes(gpt, sizes);
  sized.document_masks = options.document_masks;
  sized.dropout = options.dropout;
  return Gpt(sized);
}

absl::Status RefuseDropout(const ModelOptions& options) {
  if (options.dropout == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model ", options.name, " takes no dropout, but ",
                   options.dropout, " was given: GPTs do"));
}

absl::StatusOr<LayerSpecs> MakeLlama(const ModelOptions& options) {
  const LlamaOptions llama = *LlamaSize(options.name);
  TANDEM_RETURN_IF_ERROR(CheckTokens(options, llama.context, llama.vocabulary));
  TANDEM_RETURN_IF_ERROR(RefuseDropout(options));
  LlamaOptions sized = WithSizes(llama, options.sizes);
  sized.document_masks = options.document_masks;
  return Llama(sized);
}

absl::StatusOr<LayerSpecs> MakeVit(const ModelOptions& options) {
  const std::vector<int64_t>& shape = options.input_shape;
  VitOptions vit;
  if (shape.size() != 3 || shape[1] != shape[2] ||
      shape[1] % vit.patch_size != 0) {
    return CannotTake(options,
                      absl::StrCat("square images [channels, size, size], size "
                                   "a multiple of ",
                                   vit.patch_size));
  }
  vit.in_channels = shape[0];
  vit.image_size = shape[1];
  vit.classes = options.classes;
  return Vit(vit);
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

struct Registration {
  ModelMaker make;
  ModelTraits traits = {/*tokens=*/false, /*has_sizes=*/false};
};

std::map<std::string, Registration> BuiltIn() {
  std::map<std::string, Registration> models = {
      {"cnn", {MakeCnn}},
      {"mlp_deep", {MakeMlp<MlpDeep>}},
      {"mlp_dropout", {MakeMlp<MakeMlpDropout>}},
      {"mlp_small", {MakeMlp<MlpSmall>}},
      {"mlp_wide", {MakeMlp<MlpWide>}},
      {"resnet18", {MakeResnet<Resnet18>}},
      {"resnet34", {MakeResnet<Resnet34>}},
      {"resnet50", {MakeResnet<Resnet50>}},
      {"toy", {MakeToy<ToyModel>}},
      {"toy_mp", {MakeToy<ToyMpModel>}},
      {"unet_tiny", {MakeUnetTiny}},
      {"vit_b_16", {MakeVit}},
  };
  const ModelTraits of_text = {/*tokens=*/true, /*has_sizes=*/true};
  for (const std::string& name : GptSizes()) models[name] = {MakeGpt, of_text};
  for (const std::string& name : LlamaSizes()) {
    models[name] = {MakeLlama, of_text};
  }
  return models;
}

Registry<Registration>& Models() {
  static auto* const models = new Registry<Registration>("model", BuiltIn());
  return *models;
}

absl::Status CheckSizes(const ModelOptions& options) {
  const TransformerSizes& sizes = options.sizes;
  const std::pair<const char*, int64_t> all[] = {
      {"layers", sizes.layers},       {"width", sizes.width},
      {"heads", sizes.heads},         {"kv_heads", sizes.kv_heads},
      {"ffn_width", sizes.ffn_width},
  };
  for (const auto& [name, size] : all) {
    if (size == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model ", options.name, " is of one size, but ", name, " ",
                     size, " was given: these are transformers' sizes"));
  }
  return RefuseDropout(options);
}

absl::Status CheckPositive(const ModelOptions& options) {
  bool positive = options.classes > 0 && !options.input_shape.empty();
  for (int64_t size : options.input_shape) positive = positive && size > 0;
  if (positive) return absl::OkStatus();
  return CannotTake(options, "sizes and classes of at least 1");
}

}  // namespace

bool TakesTokens(const std::string& name) {
  return GptSize(name).has_value() || LlamaSize(name).has_value();
}

TokenLimits ModelTokenLimits(const std::string& name) {
  if (const std::optional<GptOptions> gpt = GptSize(name)) {
    return {gpt->context, gpt->vocabulary};
  }
  const LlamaOptions llama = LlamaSize(name).value();
  return {llama.context, llama.vocabulary};
}

absl::Status RegisterModel(const std::string& name, ModelMaker make,
                           const ModelTraits& traits) {
  if (name.empty() || make == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot register model '", name, "': give it a name and a maker"));
  }
  return Models().Add(name, {std::move(make), traits});
}

std::vector<std::string> RegisteredModels() { return Models().Added(); }

std::vector<std::string> KnownModels() { return Models().Names(); }

absl::StatusOr<LayerSpecs> MakeModel(const ModelOptions& options) {
  const Registration* const model = Models().Find(options.name);
  if (model == nullptr) {
    const std::vector<std::string> known = KnownModels();
    const std::string nearest = NearestName(options.name, known);
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown model '", options.name, "': choose one of ",
        NamesNear(options.name, known, "train --help=model lists all"),
        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  }
  TANDEM_RETURN_IF_ERROR(CheckPositive(options));
  if (!model->traits.has_sizes) TANDEM_RETURN_IF_ERROR(CheckSizes(options));
  const bool takes_tokens = model->traits.tokens.value_or(options.tokens);
  if (options.tokens != takes_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", options.name, " takes ",
        takes_tokens ? "token numbers" : "real numbers (float32)",
        ", but the data's inputs are ",
        options.tokens ? "token numbers" : "real numbers (float32)",
        ": choose another model or data set"));
  }
  return model->make(options);
}

}  // namespace tandem
