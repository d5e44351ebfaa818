#include "tools/trainer/job/transformer.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/files/regular_file.h"
#include "datasets/tokens/token_file.h"
#include "models/hugging_face/model_config.h"

namespace tandem {
namespace {

bool IsFolder(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::is_directory(path, error);
}

// The tokens that end a document of the training set; nothing: who knows.
std::optional<std::vector<int64_t>> DocumentEndTokens(
    const TrainOptions& options) {
  using Ends = std::vector<int64_t>;
  if (options.dataset != "tokens" || options.data_dir.empty()) {
    return std::nullopt;
  }
  if (options.end_of_text >= 0) return Ends{options.end_of_text};
  const auto file =
      TokenFile::Open(absl::StrCat(options.data_dir, "/train.bin"),
                      static_cast<int>(options.token_bytes));
  // OpenData reports what is wrong with the data.
  if (!file.ok() || !file->says_vocabulary()) return std::nullopt;
  return file->end_of_text() ? Ends{*file->end_of_text()} : Ends();
}

std::optional<Transformer> SizedTransformer(const TrainOptions& options) {
  auto named = NamedTransformer(options.model);
  if (!named.has_value()) return named;
  // The registry has found that they suit the model.
  const TransformerSizes sizes = RequestedSizes(options);
  std::visit([&](auto& own) { own = WithSizes(own, sizes); }, named->model);
  named->config = WriteModelConfig(named->model, DocumentEndTokens(options));
  return named;
}

// A dropout that is not given leaves a folder's as it is.
std::string ConfigToTrain(const Transformer& transformer,
                          const TrainOptions& options) {
  const bool drops = std::holds_alternative<GptOptions>(transformer.model) &&
                     options.dropout > 0;
  return drops ? WithDropout(transformer.config, options.dropout)
               : transformer.config;
}

// "": there is none, or none that says anything.
std::string GenerationConfigBeside(const std::string& config_file) {
  const std::string path =
      (std::filesystem::path(config_file).parent_path() / kGenerationConfigFile)
          .string();
  const auto text = ReadShortFile(path, kMaxConfigBytes);
  return text.ok() && ReadEndTokens(*text).ok() ? *text : "";
}

// A folder's model has sizes of its own.
absl::Status CheckSizes(const TrainOptions& options) {
  if (!RequestedSizes(options).any()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--init_from=", options.init_from,
      " has the sizes of its model: leave --layers, --width, --heads, "
      "--kv_heads and --ffn_width out"));
}

absl::Status CheckNamed(const TrainOptions& options,
                        const Transformer& transformer) {
  if (options.model == TrainOptions().model) return absl::OkStatus();  // none
  const auto named = NamedTransformer(options.model);
  if (named.has_value() &&
      WriteModelConfig(named->model) == WriteModelConfig(transformer.model)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--model=", options.model, " is not the model of --init_from=",
      options.init_from, ", whose ", kConfigFile,
      " says what it is: leave "
      "--model out"));
}

// A checkpoint says of which model it is. Whether it is this job's in all
// respects is for who loads it to see; here the default is not taken for what
// was meant.
absl::Status CheckIsNamed(const char* flag, const std::string& path,
                          const TrainOptions& options) {
  const auto folder = CheckpointFolderAt(path);
  if (!folder || options.model != TrainOptions().model) return absl::OkStatus();
  const auto manifest = ReadManifest(*folder);
  if (!manifest.ok()) return absl::OkStatus();
  const auto saved = ProgressOfCheckpoint(*folder, manifest->metadata);
  if (!saved.ok() || saved->model.empty() || saved->model == options.model) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      flag, "=", path, ": the checkpoint is of --model=", saved->model,
      ", but --model=", options.model,
      ", the default, was taken: give --model=", saved->model,
      ", or the --init_from that the job had which saved it, and its data"));
}

}  // namespace

TransformerSizes RequestedSizes(const TrainOptions& options) {
  return {options.layers, options.width, options.heads, options.kv_heads,
          options.ffn_width};
}

absl::StatusOr<Transformer> ReadTransformer(const std::string& config_file) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadShortFile(config_file, kMaxConfigBytes));
  const auto config = ReadModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), config_file);
  return Transformer{config->model, text, config->note, /*from_folder=*/true,
                     GenerationConfigBeside(config_file)};
}

std::optional<Transformer> NamedTransformer(absl::string_view name) {
  std::optional<TransformerOptions> model;
  if (const auto gpt = GptSize(name)) model = *gpt;
  if (const auto llama = LlamaSize(name)) model = *llama;
  if (!model.has_value()) return std::nullopt;
  return Transformer{*model, WriteModelConfig(*model), "", false, ""};
}

absl::StatusOr<std::optional<Transformer>> JobTransformer(
    const TrainOptions& options) {
  const std::string& path = options.init_from;
  std::error_code error;
  if (!path.empty() && !std::filesystem::exists(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--init_from=", path, ": there is no such folder or file"));
  }
  // A checkpoint is of the model that is named, like a file.
  std::optional<Transformer> found;
  if (!IsFolder(path) || CheckpointFolderAt(path)) {
    TANDEM_RETURN_IF_ERROR(CheckIsNamed("--init_from", path, options));
    TANDEM_RETURN_IF_ERROR(CheckIsNamed("--resume", options.resume, options));
    found = SizedTransformer(options);
  } else {
    TANDEM_RETURN_IF_ERROR(CheckSizes(options));
    auto read = ReadTransformer(absl::StrCat(path, "/", kConfigFile));
    if (!read.ok()) {
      return Annotate(read.status(),
                      absl::StrCat("--init_from=", path, HubCacheHint(path)));
    }
    TANDEM_RETURN_IF_ERROR(CheckNamed(options, *read));
    found = *std::move(read);
  }
  if (found) found->config = ConfigToTrain(*found, options);
  return found;
}

}  // namespace tandem
