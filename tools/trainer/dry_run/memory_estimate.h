// Memory estimate of a job's devices: what they hold when they hold the most,
// by a rehearsal of one replica in this process (RehearseReplica). What cannot
// be rehearsed has parameters, gradients and optimizer state by arithmetic.

#ifndef TANDEM_TOOLS_TRAINER_DRY_RUN_MEMORY_ESTIMATE_H_
#define TANDEM_TOOLS_TRAINER_DRY_RUN_MEMORY_ESTIMATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/memory/device_memory.h"
#include "tools/trainer/dry_run/job_plan.h"

namespace tandem {

struct DeviceEstimate {
  std::string layers;      // "conv1 to fc1"; several stages with "+" between
  int64_t parameters = 0;  // elements
  MemoryUse use;
};

struct MemoryEstimate {
  // One replica's devices, in the order of its ranks; of those that share
  // layers (--tensor) the first, which has most. With
  // --strategy=data_parallel, and in one piece, one that stands for all.
  std::vector<DeviceEstimate> devices;
  // Why it was not rehearsed; empty: it was, and all that is held is known.
  std::string why_by_arithmetic;

  // Requires a device.
  const DeviceEstimate& fullest() const;
};

// By arithmetic, activations and what is there for a while come on top.
MemoryEstimate EstimateMemory(const JobPlan& plan);

// FailedPrecondition where the fullest device would hold more than
// --device_memory.
absl::Status CheckDeviceMemory(const MemoryEstimate& estimate,
                               const TrainOptions& options);

// What the ranks of this host hold together, on processors and simulated
// devices, whose memory is the host's; 0 on others.
int64_t HostBytes(const MemoryEstimate& estimate, const Job& job);

// Bytes of a checkpoint: the model's tensors and the optimizer's state.
int64_t CheckpointBytes(const JobPlan& plan);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_DRY_RUN_MEMORY_ESTIMATE_H_
