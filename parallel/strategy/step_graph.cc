#include "parallel/strategy/step_graph.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/graph/capture.h"
#include "core/graph/fixed_tensor.h"

namespace tandem {
namespace {

// In memory that the next replay leaves alone.
PendingStep CopyOf(const PendingStep& step) {
  PendingStep copy = step;
  for (DeferredScore& each : copy.scores) {
    if (each.sums.defined()) each.sums = each.sums.clone();
  }
  for (PendingStep::Part& each : copy.parts) each.loss = each.loss.clone();
  if (copy.found_inf.defined()) copy.found_inf = copy.found_inf.clone();
  if (copy.norm) {
    for (at::Tensor& each : copy.norm->squares) each = each.clone();
  }
  return copy;
}

}  // namespace

std::string FormOfStep(const Batch& batch, const std::string& division) {
  return absl::StrCat(FormOfTensor(batch.inputs), " ",
                      FormOfTensor(batch.targets), " ", division);
}

StepGraph::Way StepGraph::Next(const std::string& form) {
  ++steps_;
  if (is_off()) return Way::kRun;
  if (graph_ != nullptr) return form == form_ ? Way::kReplay : Way::kRun;
  of_form_ = form == form_ ? of_form_ + 1 : 1;
  form_ = form;
  return of_form_ > kStepsBeforeCapture ? Way::kCapture : Way::kRun;
}

void StepGraph::Fill(const Batch& batch) {
  FillPlace(batch_.inputs, batch.inputs);
  FillPlace(batch_.targets, batch.targets);
}

absl::Status StepGraph::Capture(
    const Batch& batch, double learning_rate,
    absl::FunctionRef<absl::StatusOr<PendingStep>(const Batch& batch)> step) {
  CHECK(graph_ == nullptr);
  batch_ = {PlaceFor(batch.inputs, device_), PlaceFor(batch.targets, device_),
            batch.size};
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph =
      CaptureGraph(device_, [&] {
        const CapturedStep::Scope scope(&numbers_);
        absl::StatusOr<PendingStep> result = step(batch_);
        if (result.ok()) result_ = *std::move(result);
        return result.status();
      });
  if (!graph.ok()) {
    numbers_.Begin(CapturedStep::When::kNever, learning_rate);
    return graph.status();
  }
  result_.times.is_measured = false;
  result_.times.moments.clear();
  graph_ = *std::move(graph);
  captured_after_ = steps_ - 1;
  return absl::OkStatus();
}

absl::StatusOr<PendingStep> StepGraph::Replay(const Batch& batch,
                                              double learning_rate,
                                              CapturedStep::When when) {
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
    Fill(batch);
    numbers_.Begin(when, learning_rate);
  }));
  TANDEM_RETURN_IF_ERROR(graph_->Replay());
  ++replays_;
  return CatchTorchOr([&] { return CopyOf(result_); });
}

void StepGraph::TurnOff(const std::string& why) {
  off_ = why;
  graph_ = nullptr;
}

std::string StepGraph::Describe() const {
  if (is_off()) return absl::StrCat("off: ", off_);
  if (graph_ == nullptr) return "";
  return absl::StrCat("captured after ", captured_after_, " steps");
}

}  // namespace tandem
