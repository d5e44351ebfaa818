// Memory estimate of a job's devices, by arithmetic: parameters, gradients and
// optimizer state of any model, and the activations of GPTs and Llamas
// (models/transformer/training_memory.h).

#ifndef TANDEM_TOOLS_TRAINER_DRY_RUN_MEMORY_ESTIMATE_H_
#define TANDEM_TOOLS_TRAINER_DRY_RUN_MEMORY_ESTIMATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/memory/state_bytes.h"
#include "tools/trainer/dry_run/job_plan.h"

namespace tandem {

struct DeviceEstimate {
  std::string layers;      // "conv1 to fc1"; several stages with "+" between
  int64_t parameters = 0;  // elements
  StateBytes state;
  // What microbatches that wait for backward keep, when they are the most; 0:
  // not known.
  int64_t activations = 0;

  int64_t total() const { return state.total() + activations; }
};

struct MemoryEstimate {
  // One replica's devices, in the order of its ranks; of those that share
  // layers (--tensor) the first, which has most. With
  // --strategy=data_parallel, and in one piece, one that stands for all.
  std::vector<DeviceEstimate> devices;
  bool knows_activations = false;
  // Less is held, by as much as is computed a second time.
  bool checkpoints_activations = false;

  // Requires a device.
  const DeviceEstimate& fullest() const;
};

// What backward makes while it runs, and what libraries keep, comes on top.
MemoryEstimate EstimateMemory(const JobPlan& plan);

// FailedPrecondition where the fullest device would hold more than
// --device_memory, by what is certain: where activations are computed a second
// time, its state alone.
absl::Status CheckDeviceMemory(const MemoryEstimate& estimate,
                               const TrainOptions& options);

// What the ranks of this host hold together, on processors and simulated
// devices, whose memory is the host's; 0 on others.
int64_t HostBytes(const MemoryEstimate& estimate, const Job& job);

// Bytes of a checkpoint: the model's tensors and the optimizer's state.
int64_t CheckpointBytes(const JobPlan& plan);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_DRY_RUN_MEMORY_ESTIMATE_H_
