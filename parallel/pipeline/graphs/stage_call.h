// Stage call: a microbatch for a stage's forward pass, and what comes of it.

#ifndef TANDEM_PARALLEL_PIPELINE_GRAPHS_STAGE_CALL_H_
#define TANDEM_PARALLEL_PIPELINE_GRAPHS_STAGE_CALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/loss/deferred_score.h"
#include "core/loss/loss.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/pipeline/stage/stage_options.h"

namespace tandem {

struct StageCall {
  StagePass pass;
  StageMessage inputs;
  // Of the last stage.
  LossTargets targets = {};
  double weight = 1;
};

struct StageResult {
  StageMessage outputs;  // of all stages but the last
  DeferredScore score;   // of the last
};

// PipelineStage::Forward, or ForwardLoss of the last one.
absl::StatusOr<StageResult> ForwardOf(PipelineStage& stage,
                                      const StageCall& call);

// All that a graph of it repeats: shapes, dtypes, what takes gradients, and how
// much the microbatch weighs. Calls of one form do the same work.
std::string FormOf(const StageCall& call);

// Which gradients come, and of what form.
std::string FormOfGradients(const StageMessage& gradients);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_GRAPHS_STAGE_CALL_H_
