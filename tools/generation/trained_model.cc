#include "tools/generation/trained_model.h"

#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/files/user_path.h"
#include "core/launch/launch.h"
#include "core/model/layer_list.h"
#include "core/weights/load_plan.h"
#include "core/weights/stored_weights.h"
#include "models/hugging_face/model_config.h"
#include "models/lora/merged_weights.h"
#include "parallel/ddp/model_state.h"
#include "tools/trainer/job/devices.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name) {
  const std::map<std::string, c10::ScalarType> known = {
      {"fp32", c10::ScalarType::Float},
      {"bf16", c10::ScalarType::BFloat16},
      {"fp16", c10::ScalarType::Half},
      {"fp64", c10::ScalarType::Double}};
  const auto found = known.find(ShortDtypeName(name));
  if (found != known.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype=", name, ": expected fp32, bf16, fp16 or fp64"));
}

absl::StatusOr<LayerSpecs> MakeSpecs(const std::string& name,
                                     const TransformerSizes& sizes) {
  if (!TakesTokens(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", name,
                     "' is none that generates text: expected a "
                     "transformer's name, such as gpt2 or llama-3.2-1b"));
  }
  ModelOptions options;
  options.name = name;
  options.input_shape = {1};
  options.classes = 1;
  options.tokens = true;
  options.sizes = sizes;
  return MakeModel(options);
}

struct Language {
  LayerSpecs specs;
  TokenLimits limits;
  std::string config;  // empty: the model was named
};

// A model of the sizes that train was given.
absl::StatusOr<Language> LanguageFromConfig(const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(text));
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs specs, LayersOf(config.model));
  return Language{std::move(specs),
                  {ContextLength(config.model), VocabularySize(config.model)},
                  text};
}

// What was given, else what the checkpoint says.
absl::StatusOr<Language> FindLanguage(const TrainedModelOptions& options,
                                      const TrainingProgress& progress) {
  const bool given = !options.name.empty() || options.sizes.any();
  if (!given && !progress.model_config.empty()) {
    return LanguageFromConfig(progress.model_config);
  }
  const std::string& name =
      options.name.empty() ? progress.model : options.name;
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs specs, MakeSpecs(name, options.sizes));
  return Language{std::move(specs), ModelTokenLimits(name), ""};
}

NamedTensors AllTensors(const LayerList& layers) {
  NamedTensors state = NamedParameters(layers);
  for (const auto& buffer : NamedBuffers(layers)) state.push_back(buffer);
  return state;
}

// Values become those of `dtype` at once: what is stored in it stays as it is.
absl::StatusOr<TrainedModel> MakePlaced(const TrainedModelOptions& options,
                                        const Language& language) {
  TrainedModel model;
  TANDEM_ASSIGN_OR_RETURN(model.layers,
                          MakeModelLayers(language.specs, /*seed=*/0));
  model.limits = language.limits;
  model.config = language.config;
  SetTraining(model.layers, false);
  TANDEM_RETURN_IF_ERROR(Place(options.placement, model.layers));
  return model;
}

absl::StatusOr<TrainedModel> LoadCheckpoint(const TrainedModelOptions& options,
                                            const std::string& given) {
  TANDEM_ASSIGN_OR_RETURN(const std::string path, CheckpointAt(given));
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint,
                          OpenCheckpointAt(path));
  TANDEM_ASSIGN_OR_RETURN(const Language language,
                          FindLanguage(options, checkpoint.progress));
  TANDEM_ASSIGN_OR_RETURN(TrainedModel model, MakePlaced(options, language));
  TANDEM_ASSIGN_OR_RETURN(const StoredTensors weights,
                          PlainInferenceWeights(checkpoint));
  TANDEM_RETURN_IF_ERROR(CopyModelState(weights, AllTensors(model.layers)));
  model.generation_config = checkpoint.progress.generation_config;
  model.texts_vocabulary = checkpoint.progress.vocabulary;
  return model;
}

std::string ConfigFile(const std::string& folder) {
  return absl::StrCat(folder, "/", kConfigFile);
}

absl::StatusOr<TrainedModel> LoadFolder(const TrainedModelOptions& options,
                                        const std::string& folder) {
  if (!options.name.empty() || options.sizes.any()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its ", kConfigFile,
        " says which model it is, and of which sizes: leave --model, --layers, "
        "--width, --heads, --kv_heads and --ffn_width out"));
  }
  TANDEM_ASSIGN_OR_RETURN(const Transformer transformer,
                          ReadTransformer(ConfigFile(folder)));
  TANDEM_ASSIGN_OR_RETURN(const StoredWeights weights, OpenWeights(folder));
  TANDEM_ASSIGN_OR_RETURN(const Language language,
                          LanguageFromConfig(transformer.config));
  TANDEM_ASSIGN_OR_RETURN(TrainedModel model, MakePlaced(options, language));
  model.generation_config = transformer.generation_config;
  model.texts_vocabulary = ReadTextsVocabulary(transformer.config);
  const NamedTensors state = AllTensors(model.layers);
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : state) {
    infos.push_back(MakeTensorInfo(name, tensor));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const LoadPlan plan,
      PlanLoading(weights.tensors, infos, StateNameRules(transformer.model),
                  LoadAllowances()));
  TANDEM_RETURN_IF_ERROR(CheckTied(plan));
  TANDEM_RETURN_IF_ERROR(CopyModelState(plan.tensors, state));
  return model;
}

}  // namespace

absl::StatusOr<ModelPlacement> ParsePlacement(const std::string& device,
                                              const std::string& dtype) {
  ModelPlacement placement;
  TANDEM_ASSIGN_OR_RETURN(placement.dtype, ParseDtype(dtype));
  TrainOptions options;
  options.devices.device = device;
  TANDEM_ASSIGN_OR_RETURN(const auto devices,
                          PrepareDevices(options, Launch()));
  placement.device = devices.front();
  return placement;
}

absl::Status Place(const ModelPlacement& placement, const LayerList& layers) {
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { layer.module->to(placement.dtype); },
                   absl::StrCat("the dtype of layer ", layer.name)));
  }
  return MoveLayers(layers, placement.device);
}

bool IsModelFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(ConfigFile(path), error);
}

absl::StatusOr<TrainedModel> LoadTrainedModel(
    const TrainedModelOptions& options) {
  if (options.checkpoint.empty()) {
    return absl::InvalidArgumentError(
        "give what train has saved: --checkpoint=FILE, or a folder of Hugging "
        "Face's");
  }
  const std::string path = UserPath(options.checkpoint);
  absl::StatusOr<TrainedModel> model = IsModelFolder(path)
                                           ? LoadFolder(options, path)
                                           : LoadCheckpoint(options, path);
  if (model.ok()) return model;
  return Annotate(
      model.status(),
      absl::StrCat("--checkpoint=", options.checkpoint, HubCacheHint(path)));
}

}  // namespace tandem
