// Writes a checkpoint as a folder that Hugging Face's transformers loads, or as
// one file of weights.
// docs/large_models.md, or --help.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "tools/exporting.h"

ABSL_FLAG(std::string, checkpoint, "",
          "Checkpoint to export: itself, or a folder of checkpoints (its "
          "newest).");
ABSL_FLAG(std::string, output, "",
          "Folder for config.json and the weights, made where it is missing; "
          "or FILE.safetensors, for the weights of any model in one file.");
ABSL_FLAG(std::string, config, "",
          "A config.json, or its folder, for a checkpoint that does not say "
          "what its model is, or to be written instead of what it says. For a "
          "folder.");
ABSL_FLAG(std::string, model, "", "The same by a --model of train: gpt2.");
ABSL_FLAG(std::string, dtype, "float32",
          "What weights are written in: float32, bfloat16 or float16 (or fp32, "
          "bf16, fp16). A value that it cannot hold is an error.");
ABSL_FLAG(std::string, lora, "merged",
          "What becomes of a checkpoint's adapters (train's --lora_rank): "
          "merged into the weights, of which Hugging Face's transformers need "
          "not know then; or adapter: themselves alone, in the files of its "
          "PEFT.");
ABSL_FLAG(std::string, base_model, "",
          "With --lora=adapter: name or folder of the model that it belongs "
          "to. Empty: what the job began with (train's --init_from).");
ABSL_FLAG(std::string, max_shard_size, "5GB",
          "The most values of one file of a folder; more make several, with an "
          "index.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Writes a checkpoint as a folder that Hugging Face's transformers loads,\n"
    "or as one file, which safetensors.torch.load_file reads.\n"
    "\n"
    "  export --checkpoint=checkpoints --output=exported\n"
    "  export --checkpoint=checkpoints --output=model.safetensors\n"
    "  export --checkpoint=checkpoints/step-000000042 --output=DIR "
    "--dtype=bfloat16\n"
    "  export --checkpoint=checkpoints --output=adapter --lora=adapter\n";

absl::StatusOr<std::string> Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> rest,
                          ParseCommandLine(argc, argv, kUsage));
  if (!rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", rest.front(), "' is no flag: see --help"));
  }
  ExportOptions options;
  options.checkpoint = UserPath(absl::GetFlag(FLAGS_checkpoint));
  options.output = UserPath(absl::GetFlag(FLAGS_output));
  options.config = UserPath(absl::GetFlag(FLAGS_config));
  options.model = absl::GetFlag(FLAGS_model);
  options.dtype = absl::GetFlag(FLAGS_dtype);
  options.lora = absl::GetFlag(FLAGS_lora);
  options.base_model = absl::GetFlag(FLAGS_base_model);
  TANDEM_ASSIGN_OR_RETURN(options.max_shard_bytes,
                          ParseShardSize(absl::GetFlag(FLAGS_max_shard_size)));
  if (options.checkpoint.empty() || options.output.empty()) {
    return absl::InvalidArgumentError(
        "--checkpoint=CHECKPOINT and --output=DIR are both needed");
  }
  if (!options.config.empty() && !options.model.empty()) {
    return absl::InvalidArgumentError(
        "--config and --model both say what the model is: give one of them");
  }
  return Export(options);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::StatusOr<std::string> done = tandem::Run(argc, argv);
  if (!done.ok()) return tandem::Conclude("export", done.status());
  // The model's name is what the checkpoint says.
  const std::string line = tandem::PrintableLines(*done);
  return std::printf("%s\n", line.c_str()) > 0 ? 0 : tandem::kExitFailed;
}
