// PEFT adapter: the two files in which Hugging Face's PEFT keeps LoRA's
// matrices beside a model (PeftModel.from_pretrained reads them).

#ifndef TANDEM_MODELS_LORA_PEFT_ADAPTER_H_
#define TANDEM_MODELS_LORA_PEFT_ADAPTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/stored_tensors.h"
#include "models/lora/merged_weights.h"

namespace tandem {

constexpr char kAdapterConfigFile[] = "adapter_config.json";
constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";

struct PeftAdapter {
  std::string config;     // the text of adapter_config.json
  StoredTensors tensors;  // of adapter_model.safetensors
};

// PEFT's files of `weights`, those of a model with adapters: its lora_A and
// lora_B by PEFT's names
// ("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"). `base`: the
// frozen model's name or folder (base_model_name_or_path); empty: null.
// `is_language_model`: the task is CAUSAL_LM, else none. InvalidArgument as
// MergedWeights, and Unimplemented, naming it, for an adapter of a weight that
// is not its module's "weight": PEFT wraps a MultiheadAttention's two
// projections together.
absl::StatusOr<PeftAdapter> MakePeftAdapter(const StoredTensors& weights,
                                            const LoraRecord& record,
                                            const std::string& base,
                                            bool is_language_model);

}  // namespace tandem

#endif  // TANDEM_MODELS_LORA_PEFT_ADAPTER_H_
