// Stage reducer: the gradients of a stage, averaged over its replicas while
// other stages, and the stage's own last backward, still work.

#ifndef TANDEM_PARALLEL_STRATEGY_STAGE_STAGE_REDUCER_H_
#define TANDEM_PARALLEL_STRATEGY_STAGE_STAGE_REDUCER_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "parallel/ddp/reducer.h"
#include "parallel/pipeline/stage_gradients.h"

namespace tandem {

// What becomes of a stage's gradients in one step.
struct StageStep {
  // Whether they are averaged over replicas, where they are not summed in
  // order; else they only gather, and nothing is sent.
  bool averages = true;
  bool at_end = false;  // see StageReducer
  // Whether anybody but the optimizers is to see them: else, where replicas
  // share these, and memory, each gets the means of its own share alone.
  bool shows_gradients = true;
};

// A Reducer that a pipeline drives: microbatches gather, and the last action
// that adds gradients averages, bucket by bucket, while it runs: from its
// beginning where autograd tells of each gradient once, else from where it
// computes what was left of weights' gradients. A parameter that gets none in
// that time, but had one before, counts as ready after the action.
//
// A replica whose step has no microbatch adds zeros, and uses nothing.
//
// Errors: the Reducer's.
class StageReducer : public StageGradients {
 public:
  // `reducer` is of the stage's parameters, over its replicas. `defers`:
  // gradients come from a WeightGradientSink, perhaps several times in one
  // action.
  StageReducer(std::unique_ptr<Reducer> reducer, bool defers)
      : reducer_(std::move(reducer)), defers_(defers) {}

  // Whether the next step's gradients are averaged; else they only gather.
  void set_averages(bool on) { averages_ = on; }

  // Whether the next step's gradients wait for Finish: where layers share
  // statistics and a replica has fewer microbatches than others, it takes part
  // in these layers' collectives before it comes to gradients, and so a hook
  // that waits for other replicas must not run between them on any. The same on
  // every replica.
  void set_at_end(bool on) { at_end_ = on; }

  absl::Status Prepare() override;
  absl::Status Before(const Action& action, bool last) override;
  absl::Status After(const Action& action, bool last) override;
  absl::Status BeforeWeights(const Action& action) override;
  absl::Status Finish() override;

  Reducer& reducer() const { return *reducer_; }

 private:
  absl::Status Begin();

  const std::unique_ptr<Reducer> reducer_;
  const bool defers_;
  bool averages_ = true;
  bool at_end_ = false;
  bool has_acted_ = false;  // in this step
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STAGE_STAGE_REDUCER_H_
