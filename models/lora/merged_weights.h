// Merged weights: those of a plain model that computes what one with adapters
// does (PEFT's merge_and_unload), and what a checkpoint says of its adapters.

#ifndef TANDEM_MODELS_LORA_MERGED_WEIGHTS_H_
#define TANDEM_MODELS_LORA_MERGED_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/stored_tensors.h"
#include "models/lora/lora.h"

namespace tandem {

// What there is to know of adapters beside their tensors.
struct LoraRecord {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  std::string on;    // LoraOptions::on
  std::string base;  // where the frozen weights came from; empty: nobody says
  // Modules whose weights are stored as [inputs, outputs], by the ends of their
  // names (NameEnds).
  std::vector<std::string> fan_in_fan_out;
};

// Options by which a checkpoint keeps it (TrainingProgress::options):
// "lora_rank", "lora_alpha" and so on. Nothing, where `options` have no rank.
// InvalidArgument for values that are none.
std::map<std::string, std::string> LoraRecordOptions(const LoraRecord& record);
absl::StatusOr<std::optional<LoraRecord>> ReadLoraRecord(
    const std::map<std::string, std::string>& options);

LoraRecord MakeLoraRecord(const LoraOptions& options,
                          const std::vector<LoraTarget>& targets,
                          const std::string& base);

// The shortest ends of names, from a dot on ("c_attn", "attn.c_proj"), that of
// `all` say `chosen` and no others; of a name that has no such end all of it.
// PEFT's target_modules.
std::vector<std::string> NameEnds(const std::vector<std::string>& chosen,
                                  const std::vector<std::string>& all);
// Whether a module's name is one of `ends`, or has it behind a dot.
bool HasEnd(absl::string_view module, const std::vector<std::string>& ends);

// `weights` of a model with adapters as those of the model without: W + alpha /
// rank * B A in place of each W that has an adapter, computed in float (in
// double where W is), when it is read. InvalidArgument, naming the tensor,
// where an adapter lacks one of its two, is of another rank, or fits no weight
// of its module.
absl::StatusOr<StoredTensors> MergedWeights(const StoredTensors& weights,
                                            const LoraRecord& record);

// InferenceWeights of a checkpoint, merged where it has adapters.
absl::StatusOr<StoredTensors> PlainInferenceWeights(
    const StoredCheckpoint& checkpoint);

}  // namespace tandem

#endif  // TANDEM_MODELS_LORA_MERGED_WEIGHTS_H_
