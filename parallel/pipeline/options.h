// Pipeline options: how a pipeline's stages compute and wait.

#ifndef TANDEM_PARALLEL_PIPELINE_OPTIONS_H_
#define TANDEM_PARALLEL_PIPELINE_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string>

#include "parallel/schedule/activation_checkpointing.h"

namespace tandem {

struct PipelineOptions {
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
  // Layers, or groups of them, instead of whole stages; groups end where a
  // stage does. With both, a stage that is computed again keeps only what its
  // groups do.
  SelectiveCheckpointing selective;
  // Running statistics are those of whole batches
  // (core/model/microbatch_scope.h).
  bool defers_statistics = false;
  // The first stage's inputs lie in memory of their own, without gaps and from
  // a 64-byte boundary on, whatever they are cut from: some kernels' results
  // depend on it.
  bool settles_inputs = false;
  // Stages whose parameters a device has at a time, at most, where replicas
  // share them and the schedule gathers them (parallel/schedule/unshards.h); 0:
  // all of its stages.
  int max_unsharded_stages = 0;
  // How long a stage waits for a neighbour of the same process; for another
  // rank, as long as the communicator does.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // A stage that computes one action for longer hangs, ...
  std::chrono::milliseconds hang_timeout = std::chrono::minutes(30);
  // ... and this is told where. What returns must have ended the hang. Null:
  // the process ends, with that text.
  std::function<void(const std::string&)> on_hang;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_OPTIONS_H_
