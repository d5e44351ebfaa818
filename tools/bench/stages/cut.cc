#include "tools/bench/stages/cut.h"

#include <vector>

#include "core/base/status_macros.h"
#include "models/classification_loss.h"
#include "parallel/partition/copy_cost.h"
#include "parallel/partition/layer_profile.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model_parallel.h"

namespace tandem {

absl::StatusOr<ModelProfile> ProfileMicrobatch(const LayerList& layers,
                                               const Batch& batch,
                                               const Schedule& schedule) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, schedule.microbatches)));
  ProfileOptions options;
  options.splits_backward = SplitsBackward(schedule);
  options.further_inputs = parts.front().further_inputs;
  options.loss = [&parts](const at::Tensor& output, const Skips&) {
    return CrossEntropy(output, parts.front().targets).loss;
  };
  return ProfileLayers(layers, parts.front().inputs, options);
}

absl::StatusOr<SendingCost> MeasureSending() {
  const c10::Device cpu(c10::kCPU);
  return MeasureCopy(cpu, cpu);
}

absl::StatusOr<Cuts> CutByProfile(const LayerSpecs& specs,
                                  const ModelProfile& profile,
                                  const Schedule& schedule,
                                  const SendingCost& sending) {
  ModelOutline outline;
  for (const LayerSpec& each : specs) {
    outline.names.push_back(each.name);
    outline.types.push_back(each.type);
  }
  outline.parameters = ParameterCounts(specs);
  outline.profile = profile;
  return PartitionModel({BalanceKind::kProfile}, outline, schedule, {sending});
}

}  // namespace tandem
