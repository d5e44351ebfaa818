// Step graph: a training step that is captured once and replayed, and which
// steps that can be done for.

#ifndef TANDEM_PARALLEL_STRATEGY_STEP_GRAPH_H_
#define TANDEM_PARALLEL_STRATEGY_STEP_GRAPH_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/graph/device_graph.h"
#include "core/model/batch.h"
#include "parallel/optim/captured_step.h"
#include "parallel/strategy/pending_step.h"

namespace tandem {

// What of a step a graph repeats: the forms of its batch, how that is divided
// and what its loss weighs. Steps of one form run the same work.
std::string FormOfStep(const Batch& batch, const std::string& division);

// Everything of it, warm-up too, is to go to a side stream
// (core/graph/side_streams.h), for what is left on a default stream could not
// be captured.
//
// Not thread-safe.
class StepGraph {
 public:
  explicit StepGraph(c10::Device device) : device_(device) {}

  enum class Way { kRun, kCapture, kReplay };
  // Of the next step: kStepsBeforeCapture of one form run one after the other
  // before it is captured.
  Way Next(const std::string& form);

  // `step` submits one on the batch that it is given, which lies in fixed
  // memory, and returns what it came to, in memory of the graph. Nothing has
  // run then: Replay follows. An error is that of `step`, or of the capture;
  // nothing counts then.
  absl::Status Capture(
      const Batch& batch, double learning_rate,
      absl::FunctionRef<absl::StatusOr<PendingStep>(const Batch& batch)> step);
  // Runs it on `batch`: the step that was captured, or one more.
  absl::StatusOr<PendingStep> Replay(const Batch& batch, double learning_rate,
                                     CapturedStep::When when);
  // No more; `why`: a person is told.
  void TurnOff(const std::string& why);

  bool is_off() const { return !off_.empty(); }
  int64_t replays() const { return replays_; }
  // "captured after 3 steps", "off: ..."; empty: not known yet.
  std::string Describe() const;

 private:
  void Fill(const Batch& batch);

  const c10::Device device_;
  std::string form_;   // of the last step that ran, or of the graph
  int64_t steps_ = 0;  // all
  int of_form_ = 0;    // that ran, one after the other
  int64_t captured_after_ = 0;
  int64_t replays_ = 0;
  Batch batch_;  // in fixed memory
  CapturedStep numbers_;
  PendingStep result_;
  std::unique_ptr<DeviceGraph> graph_;  // goes before what it uses
  std::string off_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STEP_GRAPH_H_
