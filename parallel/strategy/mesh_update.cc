// From gradients to new parameters.

#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {

absl::Status MeshStrategyImpl::UpdateDevice(const StepContext& step,
                                            int device) {
  const at::Tensor found = step.found_inf.empty()
                               ? at::Tensor()
                               : step.found_inf[model_->LocalDevice(device)];
  const std::vector<int>& stages =
      model_->options.schedule.stages_of[static_cast<size_t>(device)];
  for (const auto& part : parts_) {
    for (int i : stages) TANDEM_RETURN_IF_ERROR(part->Update(step, i));
  }
  for (int i : stages) {
    TrainedStage& stage = model_->stage(i);
    if (step.learning_rate.has_value()) {
      if (!step.norms.has_value()) stage.ClipValues();
      TANDEM_RETURN_IF_ERROR(
          stage.Update(step.norms, *step.learning_rate, found));
    }
    if (averager_ && averager_->averages_now()) {
      TANDEM_RETURN_IF_ERROR(stage.AverageParameters());
    }
  }
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::Synchronise() {
  if (alike_) return absl::OkStatus();
  alike_ = shows_mean_ = true;
  const absl::Status done =
      model_->OnStages([&](int i) { return model_->stage(i).ShowMean(); });
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status MeshStrategyImpl::GoOnApart() {
  if (!std::exchange(shows_mean_, false)) return absl::OkStatus();
  alike_ = false;
  return model_->OnStages([&](int i) { return model_->stage(i).ShowOwn(); });
}

absl::Status MeshStrategyImpl::Finish(StepContext& step) {
  for (const auto& part : parts_) {
    TANDEM_RETURN_IF_ERROR(part->BeforeUpdate(step));
  }
  return model_->executor->OnDevices(
      [&](int device) { return UpdateDevice(step, device); });
}

}  // namespace tandem
