// SyncBatchNorm: layers of a stage normalise together with those of its other
// replicas, and a replica that has fewer microbatches takes part all the same.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/model/microbatch_scope.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/option_text.h"
#include "parallel/step/parts/rows.h"
#include "parallel/sync_batch_norm/convert.h"
#include "parallel/sync_batch_norm/stage_statistics.h"

namespace tandem {
namespace {

class SyncBatchNormPart : public StepPart {
 public:
  explicit SyncBatchNormPart(MeshModel& model) : model_(model) {}

  absl::Status ChangeLayers() override;
  absl::Status Begin(StepContext& step) override;

 private:
  // This replica's part in an action on a microbatch that it has not.
  absl::Status ActAbsent(const Action& action, int microbatches);

  MeshModel& model_;
  // By stage; null: no layer shares statistics, or elsewhere.
  std::vector<std::unique_ptr<StageStatistics>> statistics_;
};

absl::Status SyncBatchNormPart::ChangeLayers() {
  bool any = false;
  absl::Status made;
  for (const auto& stage : model_.executor->stages()) {
    statistics_.push_back(nullptr);
    if (stage == nullptr) continue;
    const auto layers = MakeSyncable(stage->layers());
    made.Update(Annotate(layers.status(), stage->name()));
    if (!layers.ok() || layers->empty()) continue;
    any = true;
    const int index = static_cast<int>(statistics_.size()) - 1;
    TANDEM_ASSIGN_OR_RETURN(Communicator* const group,
                            model_.groups.MakeStatistics(index));
    TANDEM_ASSIGN_OR_RETURN(statistics_.back(),
                            StageStatistics::Create(stage->layers(), *group));
  }
  TANDEM_RETURN_IF_ERROR(model_.Agree(made));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      model_.groups.world()->AllGatherString(
          any ? "some" : "", [] { return "whether layers share statistics"; }));
  for (const std::string& each : all) {
    if (!each.empty()) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "sync_batch_norm is for models with BatchNorm, but no layer has one: "
      "leave it out");
}

absl::Status SyncBatchNormPart::Begin(StepContext& step) {
  step.reduces_at_end = model_.shares->SomeHaveFewer();
  const int most = static_cast<int>(model_.shares->MostMicrobatches());
  step.gradients.microbatches = most;
  step.gradients.absent = [this, most](const Action& action) {
    return ActAbsent(action, most);
  };
  for (const auto& stage : statistics_) {
    if (stage != nullptr) stage->Begin();
  }
  return absl::OkStatus();
}

absl::Status SyncBatchNormPart::ActAbsent(const Action& action,
                                          int microbatches) {
  StageStatistics* const statistics =
      statistics_[static_cast<size_t>(action.stage)].get();
  if (statistics == nullptr) return absl::OkStatus();
  const Microbatch microbatch = {action.microbatch, microbatches, false,
                                 model_.options.pipeline.defers_statistics};
  if (IsForward(action.kind)) return statistics->NoForward(microbatch);
  const bool of_weights = action.kind == ActionKind::kBackwardWeight;
  return of_weights ? absl::OkStatus() : statistics->NoBackward(microbatch);
}

absl::StatusOr<std::unique_ptr<StepPart>> MakeSyncBatchNorm(MeshModel& model) {
  if (!model.options.sync_batch_norm || model.groups.replicas() == 1) {
    return std::unique_ptr<StepPart>();
  }
  return std::make_unique<SyncBatchNormPart>(model);
}

void DescribeSyncBatchNorm(const MeshStrategyOptions& options,
                           NamedValues& values) {
  values["sync_batch_norm"] = SwitchText(options.sync_batch_norm);
}

constexpr Exclusion kSyncBatchNormExcludes[] = {
    {"averaging",
     [](const MeshStrategyOptions& options) {
       return options.averaging.has_value();
     },
     "averaging has them train apart", "average_parameters_every",
     "--sync_batch_norm has replicas normalise together, $1 train apart: give "
     "one"},
};

}  // namespace

constexpr StepPartRow kSyncBatchNormRow = {
    "sync_batch_norm",
    MakeSyncBatchNorm,
    DescribeSyncBatchNorm,
    nullptr,
    {[](const MeshStrategyOptions& options) { return options.sync_batch_norm; },
     "sync_batch_norm has replicas normalise together, ",
     ": leave one of them out", kSyncBatchNormExcludes, "sync_batch_norm"}};

}  // namespace tandem
