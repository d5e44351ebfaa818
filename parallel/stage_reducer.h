// The gradients of a stage, averaged over its replicas while other stages, and
// the stage's own last backward, still work.

#ifndef TANDEM_PARALLEL_STAGE_REDUCER_H_
#define TANDEM_PARALLEL_STAGE_REDUCER_H_

#include <vector>

#include "absl/status/status.h"
#include "core/communicator.h"
#include "parallel/communication_hook.h"
#include "parallel/flat_buffer.h"
#include "parallel/reducer.h"
#include "parallel/stage_gradients.h"

namespace tandem {

// A Reducer that a pipeline drives: microbatches gather, and the last action
// that adds gradients averages, bucket by bucket: while it runs where autograd
// tells of each gradient once, else after it. A parameter that this action does
// not reach, but an earlier one has, counts as ready after it.
//
// Errors: the Reducer's.
class StageReducer : public StageGradients {
 public:
  // `buffers` hold the stage's parameters, at distinct positions; they and
  // `group`, the stage's replicas, must outlive this. `defers`: gradients come
  // from a WeightGradientSink, perhaps several times in one action.
  StageReducer(std::vector<FlatBuffer*> buffers, Communicator& group,
               ReducerOptions options, bool defers);

  // Replaces the all-reduce; before the first step.
  absl::Status SetHook(CommunicationHook hook) {
    return reducer_.SetHook(std::move(hook));
  }

  absl::Status Prepare() override;
  absl::Status Before(const Action& action, bool last) override;
  absl::Status After(const Action& action, bool last) override;
  absl::Status Finish() override;

  const Reducer& reducer() const { return reducer_; }

 private:
  absl::Status Begin();

  Reducer reducer_;
  const bool defers_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STAGE_REDUCER_H_
