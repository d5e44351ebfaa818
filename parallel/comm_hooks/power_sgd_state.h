// PowerSGD state: what stands behind a PowerSgd handle. For power_sgd.cc.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_STATE_H_
#define TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_STATE_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/bucket_memory.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "parallel/comm_hooks/power_sgd_bucket.h"

namespace tandem {

class PowerSgdState : public std::enable_shared_from_this<PowerSgdState> {
 public:
  explicit PowerSgdState(const PowerSgdOptions& options);

  // See CommunicationHook.
  absl::StatusOr<FinishReduction> Start(const GradBucket& bucket,
                                        Communicator& group);

  // See PowerSgd.
  const CompressionStats& stats() const { return stats_; }
  NamedTensors State() const;
  absl::Status LoadState(const NamedTensors& state);

 private:
  // Of one parameter, from step to step: tensors of the bucket that it is in,
  // or, before it was seen in one, those that were loaded. Undefined: none.
  struct Kept {
    at::Tensor q;
    at::Tensor error;  // as the parameter has it
  };
  using KeptByName = std::map<std::string, Kept>;

  // All that happens to a bucket in one step.
  struct Step;

  absl::StatusOr<PowerSgdBucket*> LaidOut(const GradBucket& bucket,
                                          Communicator& group);
  absl::Status Restore(const LowRankGradient& each);
  absl::Status Finish(Step& step) const;

  PowerSgdOptions options_;
  CommunicationHook all_reduce_;
  CompressionStats stats_;
  KeptByName kept_;
  BucketMemory<PowerSgdBucket> memory_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_STATE_H_
