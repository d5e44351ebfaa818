// Microbatch graph: what a pipeline stage does for one microbatch, forward and
// backward, captured once and replayed for others of its form
// (torch.cuda.make_graphed_callables).

#ifndef TANDEM_PARALLEL_PIPELINE_GRAPHS_MICROBATCH_GRAPH_H_
#define TANDEM_PARALLEL_PIPELINE_GRAPHS_MICROBATCH_GRAPH_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/graph/device_graph.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/graphs/stage_call.h"
#include "parallel/pipeline/stage/stage.h"

namespace tandem {

// Between Forward and BackwardWeight it belongs to one microbatch, whose
// activations lie in its memory. Each part is captured when it comes for the
// first time, all three for one microbatch, and then replayed, which is what
// runs; parameters must have gradients by then. What goes in is copied to fixed
// memory, what comes out is a copy that others may keep.
//
// The calling thread's current stream is a side stream of the device
// (core/graph/side_streams.h). For one thread at a time.
class MicrobatchGraph {
 public:
  explicit MicrobatchGraph(PipelineStage* stage) : stage_(*stage) {}

  // Calls of one form (FormOf). After an error the first time nothing has run,
  // and the stage has not begun the microbatch.
  absl::StatusOr<StageResult> Forward(const StageCall& call);
  // PipelineStage's. After an error the first time nothing has run, but the
  // stage's graph of the microbatch is lost: see Repeated.
  absl::StatusOr<StageMessage> BackwardInput(const StageMessage& gradients);
  absl::Status BackwardWeight();
  const std::vector<at::Tensor>& weights_left() const { return weights_left_; }

  // The call that was forwarded last, to be computed a second time.
  StageCall Repeated() const;

  // Have all parts been captured?
  bool is_complete() const { return is_complete_; }

 private:
  using Graph = std::unique_ptr<DeviceGraph>;

  absl::Status Fill(const StageCall& call);
  absl::Status CaptureForward();
  absl::Status CaptureBackwardInput();
  absl::Status CaptureBackwardWeight();

  PipelineStage& stage_;
  StageCall call_;  // in fixed memory, of the microbatch that was captured
  StageResult result_;
  StageMessage gradients_;  // of the outputs, in fixed memory
  std::string form_of_gradients_;
  StageMessage further_;  // gradients of the inputs
  std::vector<at::Tensor> weights_left_;
  bool is_complete_ = false;
  // They go before what they use.
  Graph forward_;
  Graph backward_input_;
  Graph backward_weight_;  // null: nothing is left to it
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_GRAPHS_MICROBATCH_GRAPH_H_
