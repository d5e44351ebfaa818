#include "parallel/pipeline/graphs/captured_stage.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/graph/capture.h"
#include "core/random/draw_count.h"
#include "parallel/pipeline/graphs/middle_microbatches.h"

namespace tandem {

void CapturedStage::TurnOff(const std::string& why) {
  is_on_ = false;
  why_off_ = why;
  free_.clear();
}

void CapturedStage::Begin(const std::vector<Action>& actions, int stage,
                          int microbatches) {
  middle_.clear();
  if (!is_on_) return;
  CHECK(busy_.empty()) << stage_.name();
  if (++steps_ <= kStepsBeforeCapture) return;
  middle_ = MiddleMicrobatches(actions, stage, microbatches);
}

bool CapturedStage::IsForGraph(const StageCall& call) {
  if (!is_on_ || middle_.count(call.pass.microbatch.index) == 0) return false;
  const std::string form = FormOf(call);
  if (form_.empty()) form_ = form;
  return form == form_;
}

// What a graph would repeat, or leave out, is seen here.
absl::StatusOr<StageResult> CapturedStage::RunOne(const StageCall& call) {
  const int64_t draws = CountedDraws();
  absl::StatusOr<StageResult> result = ForwardOf(stage_, call);
  if (!is_on_) return result;
  if (CountedDraws() > draws) {
    TurnOff(
        "layers draw random numbers for each microbatch (dropout), and a graph "
        "would repeat one microbatch's");
  } else if (stage_.has_auxiliary_losses()) {
    TurnOff("layers add losses of their own, which are told by microbatch");
  }
  return result;
}

CapturedStage::Graph CapturedStage::TakeFree() {
  if (free_.empty()) return std::make_unique<MicrobatchGraph>(&stage_);
  Graph graph = std::move(free_.back());
  free_.pop_back();
  return graph;
}

absl::StatusOr<StageResult> CapturedStage::Forward(const StageCall& call) {
  if (!IsForGraph(call)) return RunOne(call);
  Graph graph = TakeFree();
  const bool is_new = !graph->is_complete();
  absl::StatusOr<StageResult> result = graph->Forward(call);
  if (!result.ok() && is_new) {
    TurnOff(absl::StrCat("a microbatch cannot be captured: ",
                         std::string(result.status().message())));
    return RunOne(call);
  }
  if (!result.ok()) return result;
  ++replays_;
  if (is_new) {
    ++graphs_;
  } else {
    replayed_.insert(call.pass.microbatch.index);
  }
  busy_[call.pass.microbatch.index] = std::move(graph);
  return result;
}

absl::Status CapturedStage::Recompute(int microbatch) {
  return busy_.count(microbatch) > 0 ? absl::OkStatus()
                                     : stage_.Recompute(microbatch);
}

// A backward that cannot be captured: the activations are in the graph's
// memory, and what led to them is lost.
absl::StatusOr<StageMessage> CapturedStage::RunAgain(
    int microbatch, const StageMessage& gradients) {
  const Graph graph = std::move(busy_.extract(microbatch).mapped());
  stage_.Forget(microbatch);
  TANDEM_RETURN_IF_ERROR(ForwardOf(stage_, graph->Repeated()).status());
  return stage_.BackwardInput(microbatch, gradients);
}

absl::StatusOr<StageMessage> CapturedStage::BackwardInput(
    int microbatch, const StageMessage& gradients) {
  const auto found = busy_.find(microbatch);
  if (found == busy_.end()) return stage_.BackwardInput(microbatch, gradients);
  const bool is_new = !found->second->is_complete();
  if (is_new && !is_on_) return RunAgain(microbatch, gradients);
  absl::StatusOr<StageMessage> further =
      found->second->BackwardInput(gradients);
  if (!further.ok() && is_new) {
    TurnOff(absl::StrCat("a microbatch's backward cannot be captured: ",
                         std::string(further.status().message())));
    return RunAgain(microbatch, gradients);
  }
  if (further.ok()) ++replays_;
  return further;
}

absl::Status CapturedStage::BackwardWeight(int microbatch) {
  auto found = busy_.extract(microbatch);
  if (found.empty()) return stage_.BackwardWeight(microbatch);
  replayed_.erase(microbatch);
  Graph graph = std::move(found.mapped());
  TANDEM_RETURN_IF_ERROR(graph->BackwardWeight());
  if (!graph->weights_left().empty()) ++replays_;
  if (is_on_) free_.push_back(std::move(graph));
  return absl::OkStatus();
}

std::vector<at::Tensor> CapturedStage::WeightsLeft(int microbatch) const {
  const auto found = busy_.find(microbatch);
  return found == busy_.end() ? stage_.WeightsLeft(microbatch)
                              : found->second->weights_left();
}

int CapturedStage::microbatches_held() const {
  return stage_.microbatches_held() + static_cast<int>(replayed_.size());
}

void CapturedStage::Clear() {
  for (auto& [microbatch, graph] : busy_) {
    if (graph->is_complete() && is_on_) free_.push_back(std::move(graph));
  }
  busy_.clear();
  replayed_.clear();
  stage_.Clear();
}

}  // namespace tandem
