#include "parallel/sync_batch_norm/stage_statistics.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/sync_batch_norm/convert.h"
#include "parallel/sync_batch_norm/synchronised_statistics.h"

namespace tandem {
namespace {

bool Trains(const SharesStatistics& layer) {
  return dynamic_cast<const torch::nn::Module&>(layer).is_training();
}

}  // namespace

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

int StageStatistics::size() const {
  return static_cast<int>(shared_->layers().size());
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

}  // namespace tandem
