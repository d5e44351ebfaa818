// Export: a checkpoint as a folder that Hugging Face's transformers loads, or
// as one file of weights.

#ifndef TANDEM_TOOLS_EXPORTING_H_
#define TANDEM_TOOLS_EXPORTING_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

struct ExportOptions {
  std::string checkpoint;  // itself, or a folder of checkpoints (its newest)
  // A folder; or a file, "*.safetensors", for the parameters and buffers of any
  // model under their PyTorch names.
  std::string output;
  // For a folder: what the model is, for a checkpoint that does not say it: a
  // config.json or its folder, or a model's name. Empty: what the checkpoint
  // says.
  std::string config;
  std::string model;
  std::string dtype = "float32";  // or "bfloat16", "float16"
  // What becomes of adapters: "merged" into the weights, or the "adapter" in
  // PEFT's files alone, which name `base_model` as what it belongs to (empty:
  // what the job began with, --init_from).
  std::string lora = "merged";
  std::string base_model;
  uint64_t max_shard_bytes = 5000000000;
};

// Writes config.json and the weights, without optimizer state, a tied head once
// (as save_pretrained does); the generation_config.json that the model came
// with; and the tokenizer that was kept beside the checkpoint. All that ends a
// text is said in them. Says what was written, for a person, and which weights
// are not finite. InvalidArgument for a checkpoint that is not of the model,
// naming tensors, for an adapter of a checkpoint that has none, and for an
// output that is a checkpoint or lies in one;
// FailedPrecondition where the folder has another tokenizer; OutOfRange for
// values that `dtype` cannot hold.
absl::StatusOr<std::string> Export(const ExportOptions& options);

// "5GB", "500MB", "12KB", "1000": bytes, by powers of 1000, as
// save_pretrained's max_shard_size; with GiB, MiB, KiB by powers of 1024.
absl::StatusOr<uint64_t> ParseShardSize(const std::string& text);

}  // namespace tandem

#endif  // TANDEM_TOOLS_EXPORTING_H_
