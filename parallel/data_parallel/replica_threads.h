// Replica threads: a thread for each device but the first, kept from one
// forward to the next. (torch.nn.parallel.parallel_apply.)

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICA_THREADS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICA_THREADS_H_

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/device/device.h"

namespace tandem {

// Which samples a replica computes: rows of the whole batch.
struct ReplicaRows {
  std::vector<int64_t> first;
  std::vector<int64_t> count;
};

// Used by one thread at a time.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::vector<c10::Device> devices);

  // Runs `work` for replicas 0 to rows.first.size() - 1, all at once, each with
  // its device as the current one: replica 0 on the calling thread, the others
  // on their own, with the caller's settings (gradient mode, autocast,
  // streams). Comes back when all have ended. The first replica's error, which
  // names the replica and its device; an exception becomes one.
  //
  // What layers find out about their samples is true in each replica:
  // SampleScope has the replica's first sample, so that what is a function of
  // the sample is as on one device; losses that layers add (AddAuxiliaryLoss)
  // are weighed by samples, and added to the caller's. What is drawn from
  // LibTorch's default generator is the caller's in replica 0; in the others it
  // is another stream each, a function of the state that the generator of
  // devices[0] is in at the call: the same again for the same seed.
  absl::Status Run(const ReplicaRows& rows,
                   absl::FunctionRef<absl::Status(size_t replica)> work);

 private:
  DeviceThread& ReplicaThread(size_t replica);

  const std::vector<c10::Device> devices_;
  std::vector<std::unique_ptr<DeviceThread>> threads_;  // null: not yet
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICA_THREADS_H_
