// From gradients to new parameters.

#include <vector>

#include "core/base/status_macros.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {

absl::Status MeshStrategyImpl::UpdateDevice(const StepContext& step,
                                            int device) {
  const std::vector<int>& stages =
      model_->options.schedule.stages_of[static_cast<size_t>(device)];
  for (const auto& part : parts_) {
    for (int i : stages) TANDEM_RETURN_IF_ERROR(part->Update(step, i));
  }
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::Synchronise() {
  absl::Status done;
  for (const auto& part : parts_) {
    if (done.ok()) done = part->ShowAlike();
  }
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status MeshStrategyImpl::Finish(StepContext& step) {
  for (const auto& part : parts_) {
    TANDEM_RETURN_IF_ERROR(part->BeforeUpdate(step));
  }
  return model_->executor->OnDevices(
      [&](int device) { return UpdateDevice(step, device); });
}

}  // namespace tandem
