// Layers that normalise together with those of other replicas (SyncBatchNorm).

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "parallel/strategy/mesh_strategy_impl.h"
#include "parallel/sync_batch_norm/convert.h"
#include "parallel/sync_batch_norm/stage_statistics.h"

namespace tandem {

absl::Status MeshStrategyImpl::MakeStatistics() {
  if (!model_->options.sync_batch_norm || model_->groups.replicas() == 1) {
    return absl::OkStatus();
  }
  bool any = false;
  absl::Status made;
  for (const auto& stage : model_->executor->stages()) {
    statistics_.push_back(nullptr);
    if (stage == nullptr) continue;
    const auto layers = MakeSyncable(stage->layers());
    made.Update(Annotate(layers.status(), stage->name()));
    if (!layers.ok() || layers->empty()) continue;
    any = true;
    const int index = static_cast<int>(statistics_.size()) - 1;
    TANDEM_ASSIGN_OR_RETURN(Communicator* const group,
                            model_->groups.MakeStatistics(index));
    TANDEM_ASSIGN_OR_RETURN(statistics_.back(),
                            StageStatistics::Create(stage->layers(), *group));
  }
  TANDEM_RETURN_IF_ERROR(model_->Agree(made));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      model_->groups.world()->AllGatherString(
          any ? "some" : "", [] { return "whether layers share statistics"; }));
  for (const std::string& each : all) {
    if (!each.empty()) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "sync_batch_norm is for models with BatchNorm, but no layer has one: "
      "leave it out");
}

absl::Status MeshStrategyImpl::SetUnevenDivision(UnevenDivision division) {
  if (!model_->options.uneven_batches) {
    return absl::FailedPreconditionError(
        "replicas have batches of one size: ask for uneven_batches");
  }
  if (model_->options.reproducible && division != UnevenDivision::kSamples) {
    return absl::InvalidArgumentError(
        "reproducible divides by samples alone, whatever the replicas");
  }
  model_->options.uneven_division = division;
  model_->shares->set_division(division);
  return absl::OkStatus();
}

UnevenDivision MeshStrategyImpl::uneven_division() const {
  return model_->options.uneven_division;
}

// This replica's part in an action on a microbatch that it has not.
absl::Status MeshStrategyImpl::ActAbsent(const Action& action,
                                         int microbatches) {
  StageStatistics* const statistics =
      statistics_[static_cast<size_t>(action.stage)].get();
  if (statistics == nullptr) return absl::OkStatus();
  const Microbatch microbatch = {action.microbatch, microbatches, false,
                                 model_->options.pipeline.defers_statistics};
  if (IsForward(action.kind)) return statistics->NoForward(microbatch);
  const bool of_weights = action.kind == ActionKind::kBackwardWeight;
  return of_weights ? absl::OkStatus() : statistics->NoBackward(microbatch);
}

}  // namespace tandem
