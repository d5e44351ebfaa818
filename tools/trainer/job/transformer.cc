#include "tools/trainer/job/transformer.h"

#include <filesystem>
#include <system_error>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/files/regular_file.h"
#include "models/transformer/sizes.h"

namespace tandem {
namespace {

bool IsFolder(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::is_directory(path, error);
}

// `given`, if it is.
void Put(int64_t given, int64_t* size) {
  if (given != 0) *size = given;
}

// --layers and its like, which the registry has found to suit the model.
TransformerOptions WithSizes(TransformerOptions model,
                             const TrainOptions& options) {
  std::visit(
      [&](auto& its) {
        Put(options.layers, &its.layers);
        Put(options.width, &its.width);
        Put(options.heads, &its.heads);
      },
      model);
  if (auto* llama = std::get_if<LlamaOptions>(&model)) {
    Put(options.kv_heads, &llama->kv_heads);
    Put(options.ffn_width, &llama->ffn_width);
  }
  return model;
}

std::optional<Transformer> SizedTransformer(const TrainOptions& options) {
  auto named = NamedTransformer(options.model);
  if (!named.has_value()) return named;
  named->model = WithSizes(named->model, options);
  named->config = WriteModelConfig(named->model);
  return named;
}

// A folder's model has sizes of its own.
absl::Status CheckSizes(const TrainOptions& options) {
  if (options.layers == 0 && options.width == 0 && options.heads == 0 &&
      options.kv_heads == 0 && options.ffn_width == 0) {
    return absl::OkStatus();
  }
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

}  // namespace

absl::StatusOr<Transformer> ReadTransformer(const std::string& config_file) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadShortFile(config_file, kMaxConfigBytes));
  const auto config = ReadModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), config_file);
  return Transformer{config->model, text, config->note, /*from_folder=*/true};
}

std::optional<Transformer> NamedTransformer(absl::string_view name) {
  std::optional<TransformerOptions> model;
  if (const auto gpt = GptSize(name)) model = *gpt;
  if (const auto llama = LlamaSize(name)) model = *llama;
  if (!model.has_value()) return std::nullopt;
  return Transformer{*model, WriteModelConfig(*model), "", false};
}

absl::StatusOr<std::optional<Transformer>> TransformerOf(
    const TrainOptions& options) {
  const std::string& path = options.init_from;
  std::error_code error;
  if (!path.empty() && !std::filesystem::exists(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--init_from=", path, ": there is no such folder or file"));
  }
  if (!IsFolder(path)) return SizedTransformer(options);
  TANDEM_RETURN_IF_ERROR(CheckSizes(options));
  const auto transformer =
      ReadTransformer(absl::StrCat(path, "/", kConfigFile));
  if (!transformer.ok()) {
    return Annotate(transformer.status(), absl::StrCat("--init_from=", path));
  }
  TANDEM_RETURN_IF_ERROR(CheckNamed(options, *transformer));
  return std::optional<Transformer>(*transformer);
}

}  // namespace tandem
