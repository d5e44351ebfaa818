#include "tools/exporting.h"

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/dtype_names.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/safetensors.h"
#include "core/files/atomic_file.h"
#include "core/model/layer_list.h"
#include "core/weights/load_plan.h"
#include "core/weights/weights_folder.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokenizers/tokenizer_files.h"
#include "models/hugging_face/model_config.h"
#include "models/lora/merged_weights.h"
#include "models/lora/peft_adapter.h"
#include "tools/generation/model_tokens.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/job/transformer.h"

namespace tandem {
namespace {

constexpr char kFileSuffix[] = ".safetensors";
constexpr char kMerged[] = "merged";
constexpr char kAdapter[] = "adapter";

absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name) {
  const std::map<std::string, c10::ScalarType> known = {
      {"float32", c10::ScalarType::Float},
      {"bfloat16", c10::ScalarType::BFloat16},
      {"float16", c10::ScalarType::Half}};
  const auto found = known.find(LongDtypeName(name));
  if (found != known.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "--dtype=", name,
      ": expected float32, bfloat16 or float16 (or fp32, bf16, fp16)"));
}

absl::StatusOr<Transformer> FromFile(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  return ReadTransformer(is_folder ? absl::StrCat(path, "/", kConfigFile)
                                   : path);
}

// What was given, else what the checkpoint says.
absl::StatusOr<Transformer> FindModel(const ExportOptions& options,
                                      const TrainingProgress& progress) {
  if (!options.config.empty()) return FromFile(options.config);
  if (options.model.empty() && !progress.model_config.empty()) {
    const auto config = ReadModelConfig(progress.model_config);
    if (!config.ok()) return Annotate(config.status(), options.checkpoint);
    return Transformer{config->model, progress.model_config, "", false,
                       progress.generation_config};
  }
  const std::string name =
      options.model.empty() ? progress.model : options.model;
  const auto named = NamedTransformer(name);
  if (named.has_value()) return *named;
  return absl::InvalidArgumentError(absl::StrCat(
      options.checkpoint, " is of model ", name,
      ", which transformers does not know by a config.json: GPT-2s and Llamas "
      "can be exported so; --config=FILE or --model=NAME says which it is, and "
      "--output=FILE.safetensors takes any model's weights"));
}

// By making one layer after the other: of no size but its own.
absl::StatusOr<std::vector<TensorInfo>> TensorsToWrite(
    const TransformerOptions& model) {
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, LayersOf(model));
  std::vector<TensorInfo> infos;
  for (const LayerSpec& spec : specs) {
    TANDEM_ASSIGN_OR_RETURN(const LayerList layer, CatchTorchOr([&] {
                              return MakeLayers({spec}, /*seed=*/0);
                            }));
    for (const auto& [name, tensor] : NamedParameters(layer)) {
      infos.push_back(MakeTensorInfo(name, tensor));
    }
  }
  return infos;
}

// The tensors of the model that save_pretrained writes.
StoredTensors Written(const TransformerOptions& model,
                      const StoredTensors& tensors) {
  StoredTensors written;
  for (const StoredTensor& each : tensors) {
    if (IsWritten(model, each.info.name)) written.Add(each);
  }
  return written;
}

// What is said of a folder, where one file is asked for.
absl::Status CheckOneFile(const ExportOptions& options) {
  std::string given;
  if (!options.config.empty())
    given = absl::StrCat("--config=", options.config);
  if (!options.model.empty()) given = absl::StrCat("--model=", options.model);
  if (options.max_shard_bytes != ExportOptions().max_shard_bytes) {
    given = "--max_shard_size";
  }
  if (given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given, " is about a folder with ", kConfigFile, ", but --output=",
      options.output, " is one file, of any model: leave it out"));
}

// What lies beside a checkpoint, or in --config's folder.
struct OwnTokenizer {
  std::string folder;                    // empty: none does
  std::unique_ptr<Tokenizer> tokenizer;  // null: or it cannot be opened
};

absl::StatusOr<OwnTokenizer> FindTokenizer(const ExportOptions& options) {
  OwnTokenizer own;
  own.folder = KeptTokenizer(options.checkpoint);
  if (own.folder.empty()) own.folder = KeptTokenizer(options.config);
  if (own.folder.empty()) return own;
  TANDEM_RETURN_IF_ERROR(CheckNoOtherTokenizer(own.folder, options.output));
  // One of a kind that is not known here is for those who know it.
  auto opened = OpenTokenizer(own.folder);
  if (opened.ok()) own.tokenizer = *std::move(opened);
  return own;
}

// What is to be said of it: 0 where it is the model's own.
int64_t TextsVocabulary(const Transformer& model,
                        const TrainingProgress& progress) {
  const int64_t known = progress.vocabulary;
  return known == VocabularySize(model.model) ? 0 : known;
}

// What stands beside the weights: all that ends a text is said in each file.
absl::Status WriteFiles(const ExportOptions& options, const Transformer& model,
                        const TrainingProgress& progress,
                        const OwnTokenizer& own) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<int64_t> ends,
      AllEndTokens(model.config, model.generation_config, own.tokenizer.get(),
                   VocabularySize(model.model)));
  const auto path = [&](const char* name) {
    return absl::StrCat(options.output, "/", name);
  };
  const std::string config = WithTextsVocabulary(
      WithEndTokens(model.config, ends), TextsVocabulary(model, progress));
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(
      path(kConfigFile), WithDtype(config, LongDtypeName(options.dtype))));
  if (!model.generation_config.empty()) {
    TANDEM_RETURN_IF_ERROR(
        WriteFileAtomically(path(kGenerationConfigFile),
                            WithEndTokens(model.generation_config, ends)));
  }
  return own.folder.empty() ? absl::OkStatus()
                            : SaveTokenizer(own.folder, options.output);
}

// A line to be added.
std::string NonfiniteWarning(const NonfiniteTensors& nonfinite) {
  if (nonfinite.empty()) return "";
  return absl::StrCat("\nwarning: values that are not finite in ",
                      nonfinite.size(),
                      nonfinite.size() == 1 ? " tensor: " : " tensors: ",
                      ShortList(nonfinite, /*most=*/8, "; "));
}

// One file of any model.
absl::StatusOr<std::string> Consolidate(const ExportOptions& options,
                                        const StoredCheckpoint& checkpoint,
                                        c10::ScalarType dtype) {
  TANDEM_ASSIGN_OR_RETURN(const StoredTensors weights,
                          PlainInferenceWeights(checkpoint));
  TANDEM_ASSIGN_OR_RETURN(const NonfiniteTensors nonfinite,
                          WriteWeightsFile(options.output, weights, dtype));
  return absl::StrCat(options.output, ": ", checkpoint.progress.model, ", ",
                      weights.size(), " tensors in ", options.dtype,
                      ", from step ", checkpoint.progress.step,
                      NonfiniteWarning(nonfinite));
}

absl::Status CheckAdapterOptions(const ExportOptions& options,
                                 bool is_one_file) {
  const bool is_adapter = options.lora == kAdapter;
  std::string wrong;
  if (!is_adapter && options.lora != kMerged) {
    wrong = ": expected merged or adapter";
  } else if (!is_adapter && !options.base_model.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--base_model=", options.base_model,
        " is what an adapter belongs to: give --lora=adapter as well"));
  } else if (is_adapter && is_one_file) {
    wrong = absl::StrCat(" is two files, but --output=", options.output,
                         " is one: name a folder");
  } else if (is_adapter &&
             (!options.config.empty() || !options.model.empty())) {
    wrong =
        " is no whole model, of which --config or --model would say what "
        "it is: leave that out";
  }
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--lora=", options.lora, wrong));
}

// Transformers would take an adapter beside weights for theirs.
absl::Status MakeAdapterFolder(const std::string& folder) {
  if (HasWeights(folder)) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder,
        " has weights of a whole model: give an adapter a folder of "
        "its own"));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot make the folder ", folder));
}

// PEFT's two files. The configuration comes last: a folder that was not
// finished is no adapter.
absl::StatusOr<std::string> ExportAdapter(const ExportOptions& options,
                                          const StoredCheckpoint& checkpoint,
                                          c10::ScalarType dtype) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<LoraRecord> record,
                          ReadLoraRecord(checkpoint.progress.options));
  if (!record) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lora=adapter: ", options.checkpoint,
                     " has none: it is of a job without --lora_rank"));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const PeftAdapter adapter,
      MakePeftAdapter(
          InferenceWeights(checkpoint), *record,
          options.base_model.empty() ? record->base : options.base_model,
          !checkpoint.progress.model_config.empty()));
  TANDEM_RETURN_IF_ERROR(MakeAdapterFolder(options.output));
  const auto path = [&](const char* name) {
    return absl::StrCat(options.output, "/", name);
  };
  TANDEM_ASSIGN_OR_RETURN(
      const NonfiniteTensors nonfinite,
      WriteWeightsFile(path(kAdapterWeightsFile), adapter.tensors, dtype));
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(path(kAdapterConfigFile), adapter.config));
  return absl::StrCat(options.output, ": an adapter of rank ", record->rank,
                      ", ", adapter.tensors.size(), " tensors in ",
                      options.dtype, ", from step ", checkpoint.progress.step,
                      NonfiniteWarning(nonfinite));
}

bool IsCheckpointFile(const std::string& path) {
  const auto reader = SafetensorsReader::Open(path);
  return reader.ok() && IsCheckpointMetadata((*reader)->metadata());
}

// What a checkpoint has that is written over is lost: its optimizer's state,
// and what its manifest says of each file.
absl::Status CheckOutput(const std::string& output) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::weakly_canonical(
      std::filesystem::absolute(output, error), error);
  bool is_inside = IsCheckpointFile(place.string());
  for (; !is_inside && place.has_relative_path(); place = place.parent_path()) {
    is_inside = ReadManifest(place.string()).ok();
  }
  if (!is_inside) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--output=", output,
      " is a checkpoint, or lies in one, which would be lost: give another "
      "place"));
}

}  // namespace

absl::StatusOr<std::string> Export(const ExportOptions& options) {
  WeightsFolderOptions writing;
  writing.max_shard_bytes = options.max_shard_bytes;
  TANDEM_ASSIGN_OR_RETURN(writing.dtype, ParseDtype(options.dtype));
  const bool is_one_file = absl::EndsWith(options.output, kFileSuffix);
  TANDEM_RETURN_IF_ERROR(CheckAdapterOptions(options, is_one_file));
  if (is_one_file) TANDEM_RETURN_IF_ERROR(CheckOneFile(options));
  TANDEM_RETURN_IF_ERROR(CheckOutput(options.output));
  TANDEM_ASSIGN_OR_RETURN(const std::string path,
                          CheckpointAt(options.checkpoint));
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint,
                          OpenCheckpointAt(path));
  if (options.lora == kAdapter) {
    return ExportAdapter(options, checkpoint, *writing.dtype);
  }
  if (is_one_file) {
    return Consolidate(options, checkpoint, *writing.dtype);
  }
  TANDEM_ASSIGN_OR_RETURN(const Transformer model,
                          FindModel(options, checkpoint.progress));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TensorInfo> tensors,
                          TensorsToWrite(model.model));
  const auto weights = PlainInferenceWeights(checkpoint);
  if (!weights.ok()) return Annotate(weights.status(), path);
  const auto plan = PlanLoading(*weights, tensors, StateNameRules(model.model),
                                LoadAllowances());
  if (!plan.ok()) return Annotate(plan.status(), path);
  TANDEM_RETURN_IF_ERROR(Annotate(CheckTied(*plan), path));
  const StoredTensors written = Written(model.model, plan->tensors);
  TANDEM_ASSIGN_OR_RETURN(const OwnTokenizer own, FindTokenizer(options));
  TANDEM_ASSIGN_OR_RETURN(const NonfiniteTensors nonfinite,
                          WriteWeightsFolder(options.output, written, writing));
  TANDEM_RETURN_IF_ERROR(WriteFiles(options, model, checkpoint.progress, own));
  return absl::StrCat(options.output, ": ", ModelType(model.model), ", ",
                      written.size(), " tensors in ", options.dtype,
                      ", from step ", checkpoint.progress.step,
                      own.folder.empty() ? ", without a tokenizer: none lies "
                                           "beside the checkpoint"
                                         : ", with its tokenizer",
                      NonfiniteWarning(nonfinite));
}

absl::StatusOr<uint64_t> ParseShardSize(const std::string& text) {
  const std::pair<const char*, uint64_t> units[] = {{"GiB", uint64_t{1} << 30},
                                                    {"MiB", uint64_t{1} << 20},
                                                    {"KiB", uint64_t{1} << 10},
                                                    {"GB", 1000000000},
                                                    {"MB", 1000000},
                                                    {"KB", 1000},
                                                    {"", 1}};
  for (const auto& [unit, bytes] : units) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit)) continue;
    uint64_t value = 0;
    if (absl::SimpleAtoi(number, &value) && value >= 1 && value < 1000000000) {
      return value * bytes;
    }
    break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--max_shard_size=", text, ": expected a size such as 5GB or 500MB"));
}

}  // namespace tandem
