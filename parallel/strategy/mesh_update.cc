// From gradients to new parameters.

#include <ATen/Tensor.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

bool IsAveraged(const FlatBuffer& buffer) {
  return buffer.traits().reduces_over(kDataAxis);
}

// Of a parameter of these stages, by its place among all of the model's; else
// empty. `firsts`: how many come before each stage's.
std::string NameOfParameter(
    int64_t place, const std::vector<std::unique_ptr<TrainedStage>>& stages,
    const std::vector<int64_t>& firsts) {
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == nullptr) continue;
    for (const FlatBuffer* buffer : stages[i]->own()) {
      for (const FlatSlot& slot : buffer->slots()) {
        if (firsts[i] + slot.position == place) return slot.name;
      }
    }
  }
  return "";
}

}  // namespace

// Has one device all gradients, and clips by their norm without the host's
// waiting for it? Its norm is summed in an order of its own.
bool MeshStrategyImpl::clips_on_device() const {
  const bool is_whole =
      model_->options.schedule.stages == 1 && model_->tied.empty();
  return is_whole && !model_->options.reproducible &&
         model_->stages.front()->clips_on_device();
}

// Of every parameter's gradient, in the order of the model: the same on every
// rank, wherever it is cut. First the averaged ones, then each replica's own.
absl::StatusOr<GradientNorms> MeshStrategyImpl::NormsOfAll() {
  const double p = model_->options.clip_norm_type;
  const int64_t count = model_->first_parameters.back();
  const at::Tensor all = at::zeros({2, count}, at::kDouble);
  auto* const sums = all.mutable_data_ptr<double>();
  TANDEM_RETURN_IF_ERROR(model_->executor->OnDevices([&](int device) {
    for (int i :
         model_->options.schedule.stages_of[static_cast<size_t>(device)]) {
      TrainedStage& stage = *model_->stages[static_cast<size_t>(i)];
      stage.ClipValues();
      for (FlatBuffer* buffer : stage.own()) {
        double* const its = sums + (IsAveraged(*buffer) ? 0 : count) +
                            model_->first_parameters[static_cast<size_t>(i)];
        for (const GradientSum& each :
             GradientSums(FlatBufferList({buffer}), p)) {
          its[each.slot->position] = each.sum;
        }
      }
    }
    return absl::OkStatus();
  }));
  if (model_->groups.pipe() != nullptr) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(model_->groups.pipe()->AllReduceSum(
        all, [] { return "the norm of the gradients"; }));
  }
  GradientNorms norms;
  TANDEM_ASSIGN_OR_RETURN(norms.averaged,
                          ClippingNorm({sums, sums + count}, p));
  TANDEM_ASSIGN_OR_RETURN(norms.own,
                          ClippingNorm({sums + count, sums + 2 * count}, p));
  for (const double norm : {norms.averaged, norms.own}) {
    if (!model_->options.error_if_nonfinite || std::isfinite(norm)) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string culprit, NonFiniteGradient(all));
    return NonFiniteNormError(norm, p, culprit);
  }
  return norms;
}

// Which parameter's gradient is not finite, of which one is. Every rank of the
// pipeline sees the same sums, and one of them knows the name.
absl::StatusOr<std::string> MeshStrategyImpl::NonFiniteGradient(
    const at::Tensor& sums) const {
  const auto* const values = sums.const_data_ptr<double>();
  const auto* const end = values + sums.numel();
  const auto* const found =
      std::find_if(values, end, [](double sum) { return !std::isfinite(sum); });
  CHECK(found != end);
  const std::string mine =
      NameOfParameter((found - values) % model_->first_parameters.back(),
                      model_->stages, model_->first_parameters);
  if (model_->groups.pipe() == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          model_->groups.pipe()->AllGatherString(mine));
  return absl::StrJoin(all, "");
}

absl::Status MeshStrategyImpl::UpdateDevice(const StepContext& step,
                                            int device) {
  const at::Tensor found = step.found_inf.empty()
                               ? at::Tensor()
                               : step.found_inf[model_->LocalDevice(device)];
  if (!updates_together()) {
    TANDEM_RETURN_IF_ERROR(MakeDevicesBuffersAlike(device));
  }
  for (int i :
       model_->options.schedule.stages_of[static_cast<size_t>(device)]) {
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

// What replicas have each for themselves of the forward passes.
absl::Status MeshStrategyImpl::MakeBuffersAlike(int stage) {
  if (model_->options.reproducible) return ApplyStatistics(stage);
  if (!ends_alike()) return absl::OkStatus();
  return model_->stages[static_cast<size_t>(stage)]->ShareBuffers();
}

absl::Status MeshStrategyImpl::MakeDevicesBuffersAlike(int device) {
  for (int i :
       model_->options.schedule.stages_of[static_cast<size_t>(device)]) {
    TANDEM_RETURN_IF_ERROR(MakeBuffersAlike(i));
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

// One device alone updates after its collectives anyhow.
bool MeshStrategyImpl::updates_together() const {
  return model_->options.updates_last && model_->options.devices.size() > 1;
}

// Is a device's update its own affair? A norm that is told is that of gradients
// before they are clipped.
bool MeshStrategyImpl::updates_at_once() const {
  const bool needs_norm =
      model_->options.clip_norm > 0 && (measures_norm_ || !clips_on_device());
  return !needs_norm && !updates_together();
}

absl::Status MeshStrategyImpl::Finish(StepContext& step) {
  for (const auto& part : parts_) {
    TANDEM_RETURN_IF_ERROR(part->BeforeUpdate(step));
  }
  const bool clips =
      model_->options.clip_norm > 0 && step.learning_rate.has_value();
  if (clips && !step.clips_on_host) {
    TANDEM_RETURN_IF_ERROR(MeasureBeforeClipping());
  } else if (clips) {
    TANDEM_ASSIGN_OR_RETURN(step.norms, NormsOfAll());
    TANDEM_RETURN_IF_ERROR(NoteNorm(*step.norms));
  }
  if (updates_together()) {
    TANDEM_RETURN_IF_ERROR(model_->executor->OnDevices(
        [&](int device) { return MakeDevicesBuffersAlike(device); }));
  }
  return model_->executor->OnDevices(
      [&](int device) { return UpdateDevice(step, device); });
}

}  // namespace tandem
