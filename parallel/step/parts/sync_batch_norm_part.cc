#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/context/compute_context.h"
#include "core/model/layer.h"
#include "core/model/shared_statistics.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/sync_batch_norm/sync_batch_norm.h"
#include "parallel/sync_batch_norm/synchronised_statistics.h"

// SyncBatchNorm: layers of a stage normalise together with those of its other
// replicas, and a replica that has fewer microbatches takes part all the same.

namespace tandem {
namespace {

// Microbatch m of a replica is normalised together with microbatch m of the
// others. In a step they run the same actions in the schedule's order; for one
// whose microbatch a replica lacks it calls NoForward or NoBackward, which take
// part with a count of 0, so that running statistics stay alike.
//
// For that the layers must run in the order in which they were registered, once
// a microbatch, and each must have a gradient to give: LibTorch's error, of the
// layer's forward, names what does not. For the stage's thread alone.
class StageStatistics {
 public:
  // Converts the layers (ConvertSyncBatchNorm); null where there is none to
  // convert. `group` is the stage's replicas' and used for nothing else; it
  // must outlive the layers. InvalidArgument as ConvertSyncBatchNorm.
  static absl::StatusOr<std::unique_ptr<StageStatistics>> Create(
      const LayerList& layers, Communicator& group);
  ~StageStatistics();

  // A step begins.
  void Begin();
  absl::Status NoForward(const Microbatch& microbatch);
  absl::Status NoBackward(const Microbatch& microbatch);

 private:
  class Ordered;

  StageStatistics();

  std::shared_ptr<Ordered> shared_;
};

bool Trains(const SharesStatistics& layer) {
  return dynamic_cast<const torch::nn::Module&>(layer).is_training();
}

// Statistics that see in which order layers ask.
class StageStatistics::Ordered : public SynchronisedStatistics {
 public:
  Ordered(std::vector<SharesStatistics*> layers, Communicator& group)
      : SynchronisedStatistics(group), layers_(std::move(layers)) {}

  SharedStatistics Share(const at::Tensor& x,
                         const SharesStatistics& layer) override {
    const auto microbatch = MicrobatchScope::Current();
    if (microbatch.has_value() && !microbatch->is_recomputed) {
      CheckOrder(microbatch->index, layer);
    }
    return SynchronisedStatistics::Share(x, layer);
  }

  void Begin() { next_.clear(); }

  const std::vector<SharesStatistics*>& layers() const { return layers_; }

 private:
  void CheckOrder(int microbatch, const SharesStatistics& layer) {
    size_t& next = next_[microbatch];
    while (next < layers_.size() && !Trains(*layers_[next])) ++next;
    TORCH_CHECK_VALUE(
        next < layers_.size() && layers_[next] == &layer,
        "SyncBatchNorm's layers must each run once a microbatch, in the order "
        "in which they were registered, so that replicas meet; in microbatch ",
        microbatch, " this one came out of turn");
    ++next;
  }

  const std::vector<SharesStatistics*> layers_;
  std::map<int, size_t> next_;  // by microbatch
};

StageStatistics::StageStatistics() = default;
StageStatistics::~StageStatistics() = default;

absl::StatusOr<std::unique_ptr<StageStatistics>> StageStatistics::Create(
    const LayerList& layers, Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<SharesStatistics*> modules,
                          MakeSyncable(layers));
  if (modules.empty()) return std::unique_ptr<StageStatistics>();
  auto stage = absl::WrapUnique(new StageStatistics);
  stage->shared_ = std::make_shared<Ordered>(modules, group);
  for (SharesStatistics* each : modules) {
    each->set_statistics_group(stage->shared_);
  }
  return stage;
}

void StageStatistics::Begin() { shared_->Begin(); }

absl::Status StageStatistics::NoForward(const Microbatch& microbatch) {
  return CatchTorch([&] {
    const MicrobatchScope scope(microbatch);
    for (SharesStatistics* layer : shared_->layers()) {
      if (!Trains(*layer)) continue;
      layer->TakeIn(shared_->Share(layer->NoSamples(), *layer));
    }
  });
}

// In the order of backward: the layers' reverse.
absl::Status StageStatistics::NoBackward(const Microbatch& microbatch) {
  return CatchTorch([&] {
    const MicrobatchScope scope(microbatch);
    const auto& layers = shared_->layers();
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      if (Trains(**layer)) shared_->AddNothing((*layer)->NoSamples());
    }
  });
}

class SyncBatchNormPart : public StepPart {
 public:
  explicit SyncBatchNormPart(MeshModel& model) : model_(model) {}

  absl::Status ChangeLayers() override;
  absl::Status Begin(StepContext& step) override;

 private:
  // This replica's part in an action on a microbatch that it has not.
  absl::Status RunMissing(const Action& action, int microbatches);

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
  step.gradients.on_missing = [this, most](const Action& action) {
    return RunMissing(action, most);
  };
  for (const auto& stage : statistics_) {
    if (stage != nullptr) stage->Begin();
  }
  return absl::OkStatus();
}

absl::Status SyncBatchNormPart::RunMissing(const Action& action,
                                           int microbatches) {
  StageStatistics* const statistics =
      statistics_[static_cast<size_t>(action.stage)].get();
  if (statistics == nullptr) return absl::OkStatus();
  const Microbatch microbatch = {action.microbatch, microbatches, false,
                                 model_.options.pipeline.defers_statistics};
  if (IsForward(action.kind)) return statistics->NoForward(microbatch);
  // It issues no collective (parallel/pipeline/executor.h).
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
