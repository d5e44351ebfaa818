#include "parallel/pipeline/graphs/microbatch_graph.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <glog/logging.h>

#include <cstddef>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/graph/capture.h"
#include "core/graph/fixed_tensor.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

StageMessage PlacesFor(const StageMessage& like, c10::Device device) {
  StageMessage places;
  for (const at::Tensor& each : like) places.push_back(PlaceFor(each, device));
  return places;
}

LossTargets PlacesFor(const LossTargets& like, c10::Device device) {
  LossTargets places(PlaceFor(like.targets, device));
  for (const auto& [name, tensor] : like.further) {
    places.further[name] = PlaceFor(tensor, device);
  }
  return places;
}

void FillPlaces(const StageMessage& places, const StageMessage& from) {
  for (size_t i = 0; i < places.size(); ++i) FillPlace(places[i], from[i]);
}

// For whoever has it longer than the next replay.
StageMessage CopiesOf(const StageMessage& message) {
  StageMessage copies;
  for (const at::Tensor& each : message) {
    copies.push_back(each.defined()
                         ? each.clone().requires_grad_(each.requires_grad())
                         : each);
  }
  return copies;
}

size_t CountGradients(const PipelineStage& stage) {
  size_t count = 0;
  for (const auto& each : NamedParameters(stage.layers())) {
    count += each.second.grad().defined() ? 1 : 0;
  }
  return count;
}

}  // namespace

absl::Status MicrobatchGraph::Fill(const StageCall& call) {
  const c10::Device device = stage_.device();
  const c10::OptionalDeviceGuard guard(device);
  return CatchTorch([&] {
    if (forward_ == nullptr) {
      const MemoryCategoryScope category(MemoryCategory::kActivations);
      call_ = call;
      call_.inputs = PlacesFor(call.inputs, device);
      call_.targets = PlacesFor(call.targets, device);
    }
    FillPlaces(call_.inputs, call.inputs);
    FillPlace(call_.targets.targets, call.targets.targets);
    for (const auto& [name, place] : call_.targets.further) {
      FillPlace(place, call.targets.further.at(name));
    }
  });
}

absl::Status MicrobatchGraph::CaptureForward() {
  absl::StatusOr<Graph> graph = CaptureGraph(stage_.device(), [&] {
    absl::StatusOr<StageResult> result = ForwardOf(stage_, call_);
    if (result.ok()) result_ = *std::move(result);
    return result.status();
  });
  if (!graph.ok()) {
    stage_.Forget(call_.pass.microbatch.index);
    return graph.status();
  }
  forward_ = *std::move(graph);
  return absl::OkStatus();
}

absl::StatusOr<StageResult> MicrobatchGraph::Forward(const StageCall& call) {
  TANDEM_RETURN_IF_ERROR(Fill(call));
  if (forward_ == nullptr) TANDEM_RETURN_IF_ERROR(CaptureForward());
  TANDEM_RETURN_IF_ERROR(forward_->Replay());
  const at::NoGradGuard no_grad;
  return CatchTorchOr([&] {
    const MemoryCategoryScope category(MemoryCategory::kActivations);
    StageResult copy = result_;
    copy.outputs = CopiesOf(result_.outputs);
    if (copy.score.sums.defined()) copy.score.sums = copy.score.sums.clone();
    return copy;
  });
}

// What autograd makes a parameter's gradient of is the graph's memory, unless
// there is one to be added to.
absl::Status MicrobatchGraph::CaptureBackwardInput() {
  const int index = call_.pass.microbatch.index;
  const size_t before = CountGradients(stage_);
  TANDEM_ASSIGN_OR_RETURN(backward_input_, CaptureGraph(stage_.device(), [&] {
                            absl::StatusOr<StageMessage> further =
                                stage_.BackwardInput(index, gradients_);
                            if (further.ok()) further_ = *std::move(further);
                            return further.status();
                          }));
  weights_left_ = stage_.WeightsLeft(index);
  if (CountGradients(stage_) == before) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a parameter gets a gradient of it that the first microbatch had none "
      "for");
}

absl::StatusOr<StageMessage> MicrobatchGraph::BackwardInput(
    const StageMessage& gradients) {
  const bool is_first = backward_input_ == nullptr;
  if (is_first) {
    const MemoryCategoryScope category(MemoryCategory::kActivations);
    TANDEM_RETURN_IF_ERROR(CatchTorch(
        [&] { gradients_ = PlacesFor(gradients, stage_.device()); }));
    form_of_gradients_ = FormOfGradients(gradients);
  } else if (FormOfGradients(gradients) != form_of_gradients_) {
    return absl::FailedPreconditionError(
        "gradients of other outputs come than when the microbatch was captured "
        "in a graph: leave cuda_graphs out");
  }
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { FillPlaces(gradients_, gradients); }));
  if (is_first) TANDEM_RETURN_IF_ERROR(CaptureBackwardInput());
  TANDEM_RETURN_IF_ERROR(backward_input_->Replay());
  const at::NoGradGuard no_grad;
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  return CatchTorchOr([&] { return CopiesOf(further_); });
}

absl::Status MicrobatchGraph::CaptureBackwardWeight() {
  const int index = call_.pass.microbatch.index;
  if (weights_left_.empty()) return stage_.BackwardWeight(index);
  TANDEM_ASSIGN_OR_RETURN(backward_weight_, CaptureGraph(stage_.device(), [&] {
                            return stage_.BackwardWeight(index);
                          }));
  return absl::OkStatus();
}

absl::Status MicrobatchGraph::BackwardWeight() {
  CHECK(backward_input_ != nullptr);
  if (!is_complete_) TANDEM_RETURN_IF_ERROR(CaptureBackwardWeight());
  is_complete_ = true;
  return backward_weight_ == nullptr ? absl::OkStatus()
                                     : backward_weight_->Replay();
}

StageCall MicrobatchGraph::Repeated() const {
  StageCall call = call_;
  call.pass.microbatch.is_recomputed = true;
  return call;
}

}  // namespace tandem
