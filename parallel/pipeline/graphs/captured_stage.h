// Captured stage: a pipeline stage whose middle microbatches are replayed as
// device graphs (CUDA graphs), which spares the host what it does for each
// kernel.

#ifndef TANDEM_PARALLEL_PIPELINE_GRAPHS_CAPTURED_STAGE_H_
#define TANDEM_PARALLEL_PIPELINE_GRAPHS_CAPTURED_STAGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/graphs/microbatch_graph.h"
#include "parallel/pipeline/graphs/stage_call.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Has PipelineStage's methods for a step of training, and hands them on, until
// it is turned on and kStepsBeforeCapture steps have run. From then on middle
// microbatches (middle_microbatches.h) of one form go to graphs, as many as are
// under way at once; all others run as ever. What cannot be captured turns it
// off again: nothing is lost, and why_off() says why.
//
// Memory: each graph keeps a microbatch's activations, and what forward and
// backward need besides, for good.
//
// Used by the thread of the stage's device, as MicrobatchGraph is; the rest
// between steps.
class CapturedStage {
 public:
  explicit CapturedStage(PipelineStage* stage) : stage_(*stage) {}

  void TurnOn() { is_on_ = true; }
  // A step of training begins, of so many microbatches and with these actions
  // of the device's, among which the stage's (number `stage`) are.
  void Begin(const std::vector<Action>& actions, int stage, int microbatches);

  absl::StatusOr<StageResult> Forward(const StageCall& call);
  absl::Status Recompute(int microbatch);
  absl::StatusOr<StageMessage> BackwardInput(int microbatch,
                                             const StageMessage& gradients);
  absl::Status BackwardWeight(int microbatch);
  std::vector<at::Tensor> WeightsLeft(int microbatch) const;

  // PipelineStage's, those in graphs among them.
  int microbatches_held() const;
  // Forgets every microbatch, after an error.
  void Clear();

  // Empty: it is not.
  const std::string& why_off() const { return why_off_; }
  int graphs() const { return graphs_; }
  // Of parts of microbatches, so far.
  int64_t replays() const { return replays_; }

 private:
  using Graph = std::unique_ptr<MicrobatchGraph>;

  void TurnOff(const std::string& why);
  bool IsForGraph(const StageCall& call);
  absl::StatusOr<StageResult> RunOne(const StageCall& call);
  absl::StatusOr<StageMessage> RunAgain(int microbatch,
                                        const StageMessage& gradients);
  // With one that it has been captured in and is replayed, or a new one.
  Graph TakeFree();

  PipelineStage& stage_;
  bool is_on_ = false;
  int steps_ = 0;         // that have begun since
  std::set<int> middle_;  // of the step
  std::string form_;      // of all graphs
  std::vector<Graph> free_;
  std::map<int, Graph> busy_;  // by microbatch
  std::set<int> replayed_;     // among these, of which the stage knows nothing
  int graphs_ = 0;
  int64_t replays_ = 0;
  std::string why_off_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_GRAPHS_CAPTURED_STAGE_H_
