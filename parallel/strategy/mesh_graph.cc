// Steps, or parts of them, that a device replays as a graph.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/graph/make_device_graph.h"
#include "core/random/draw_count.h"
#include "parallel/strategy/capture_checks.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {

// Before anything that autograd remembers streams of.
void MeshStrategyImpl::MakeGraph() {
  if (!options_.cuda_graphs) return;
  const c10::Device device = options_.devices.front();
  if (device.is_cpu() || !CheckHasGraphs(device).ok()) return;
  sides_ = SideStreams(options_.devices);
  if (!is_cut()) graph_.emplace(device);
}

bool MeshStrategyImpl::is_cut() const {
  return options_.schedule.devices() > 1 || options_.schedule.stages > 1;
}

// When all is there that it depends on.
void MeshStrategyImpl::CheckGraph(const LossFunction& loss) {
  if (!options_.cuda_graphs) return;
  const c10::Device device = options_.devices.front();
  CaptureFacts facts;
  facts.has_graphs = CheckHasGraphs(device);
  facts.replicas = groups_.replicas();
  facts.loss_has_weight = static_cast<bool>(loss.weight());
  facts.exchanges_on_streams =
      groups_.world() == nullptr || groups_.world()->HasStreams(device.type());
  for (const TrainedStage* stage : AllStages()) {
    facts.clips_on_device = clips_on_device();
    facts.shares_optimizer |= stage->sharding().shards;
  }
  for (const auto& stage : executor_->stages()) {
    if (stage == nullptr) continue;
    facts.records_statistics |= stage->records() != nullptr;
  }
  why_no_graph_ = is_cut() ? WhyMicrobatchesAreNotCaptured(options_, facts)
                           : WhyNotCaptured(options_, facts);
  if (graph_ && !why_no_graph_.empty()) graph_->TurnOff(why_no_graph_);
  if (is_cut() && why_no_graph_.empty()) executor_->CaptureMicrobatches();
}

std::string MeshStrategyImpl::DescribeGraph() const {
  if (graph_) return graph_->Describe();
  return why_no_graph_.empty() ? executor_->DescribeGraphs()
                               : absl::StrCat("off: ", why_no_graph_);
}

int64_t MeshStrategyImpl::replayed_steps() const {
  return graph_ ? graph_->replays() : 0;
}

// All numbers of a step that the host bakes in.
absl::StatusOr<std::string> MeshStrategyImpl::FormOf(const Batch& batch) const {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          shares_->Microbatches(batch));
  TANDEM_ASSIGN_OR_RETURN(const StepSamples samples,
                          shares_->SamplesOfStep(microbatches, step_));
  const std::string sizes =
      absl::StrJoin(microbatches, "+", [](std::string* out, const Batch& each) {
        absl::StrAppend(out, each.size);
      });
  return FormOfStep(batch,
                    absl::StrCat(sizes, " of ", samples.of, " ",
                                 shares_->MostMicrobatches(), " at most"));
}

absl::Status MeshStrategyImpl::SubmitOrReplay(const Batch& batch,
                                              double learning_rate,
                                              bool defers_scores) {
  const bool is_plain =
      batch.further_inputs.empty() && batch.further_targets.empty();
  if (!graph_->is_off() && !is_plain) {
    graph_->TurnOff(
        "a batch has further inputs or targets, which have no fixed memory");
  }
  if (graph_->is_off()) return Run(batch, learning_rate, defers_scores);
  TANDEM_ASSIGN_OR_RETURN(const std::string form, FormOf(batch));
  switch (graph_->Next(form)) {
    case StepGraph::Way::kRun:
      return WarmUp(batch, learning_rate, defers_scores);
    case StepGraph::Way::kCapture:
      return CanCaptureSkips() ? Capture(batch, learning_rate, defers_scores)
                               : WarmUp(batch, learning_rate, defers_scores);
    case StepGraph::Way::kReplay:
      break;
  }
  return Replay(batch, learning_rate, CapturedStep::When::kNextStep);
}

absl::Status MeshStrategyImpl::WarmUp(const Batch& batch, double learning_rate,
                                      bool defers_scores) {
  const int64_t draws = CountedDraws();
  const absl::Status done = Run(batch, learning_rate, defers_scores);
  if (CountedDraws() > draws) {
    graph_->TurnOff(
        "layers draw random numbers for each step (dropout), and a graph would "
        "repeat one step's");
  }
  return done;
}

// Those that were skipped so far, as the first ones with a high scale are, may
// have left parameters without a first step. The host asks once.
bool MeshStrategyImpl::CanCaptureSkips() const {
  return !loss_scale_ ||
         absl::c_all_of(AllStages(), [](const TrainedStage* stage) {
           return stage->IsPastFirstStep();
         });
}

void MeshStrategyImpl::RepeatVerdict() {
  CapturedStep* const captured = CapturedStep::Current();
  if (captured == nullptr) return;
  captured->Add([this](CapturedStep::When when, double) {
    if (when == CapturedStep::When::kNever) loss_scale_->TakeBack();
    if (when != CapturedStep::When::kNextStep) return;
    loss_scale_->Tell();
    loss_scale_->CountReplay();
  });
}

absl::Status MeshStrategyImpl::Capture(const Batch& batch, double learning_rate,
                                       bool defers_scores) {
  // What is kept of parameters (copies of another dtype) is made anew, in it.
  for (TrainedStage* stage : AllStages()) {
    for (FlatBuffer* buffer : stage->all()) buffer->CountWrite();
  }
  if (loss_scale_) loss_scale_->Tell();
  const int64_t step = step_;
  const size_t pending = pending_.size();
  const absl::Status captured =
      graph_->Capture(batch, learning_rate,
                      [&](const Batch& fixed) -> absl::StatusOr<PendingStep> {
                        TANDEM_RETURN_IF_ERROR(
                            Run(fixed, learning_rate, /*defers_scores=*/true));
                        PendingStep result = std::move(pending_.back());
                        pending_.pop_back();
                        result.norm = std::exchange(norm_, std::nullopt);
                        return result;
                      });
  if (captured.ok()) {
    return Replay(batch, learning_rate, CapturedStep::When::kThisStep);
  }
  const std::string why = absl::StrCat("a step cannot be captured: ",
                                       std::string(captured.message()));
  if (groups_.replicas() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        why, "; replicas cannot go on from here: leave cuda_graphs out"));
  }
  step_ = step;
  pending_.resize(pending);
  graph_->TurnOff(why);
  return Run(batch, learning_rate, defers_scores);
}

absl::Status MeshStrategyImpl::Replay(const Batch& batch, double learning_rate,
                                      CapturedStep::When when) {
  const bool counts = when == CapturedStep::When::kNextStep;
  TANDEM_ASSIGN_OR_RETURN(PendingStep step,
                          graph_->Replay(batch, learning_rate, when));
  if (counts) {
    for (TrainedStage* stage : AllStages()) stage->CountReplay();
    EndStep();
  }
  step.number = step_;
  norm_ = std::exchange(step.norm, std::nullopt);
  pending_.push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace tandem
