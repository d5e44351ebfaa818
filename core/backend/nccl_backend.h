// NCCL backend: serves CUDA tensors. In a build without --config=cuda it is
// refused. The one file that knows its types is nccl_backend.cc.

#ifndef TANDEM_CORE_BACKEND_NCCL_BACKEND_H_
#define TANDEM_CORE_BACKEND_NCCL_BACKEND_H_

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

struct NcclOptions {
  // How long c10d's watchdog leaves an operation alone. When it has waited so
  // long it writes what it knows (the flight recorder) and ends the process: a
  // last resort, later than what tandem itself waits for.
  std::chrono::milliseconds watchdog_timeout = std::chrono::minutes(31);
  // Runs collectives on a stream of high priority, so that they begin while
  // kernels of the compute stream wait: for gradients, not for messages.
  bool high_priority_stream = false;
  // What messages and the flight recorder call the group ("data of stage 2"),
  // and its ranks by their numbers in the job. Empty: as they count.
  std::string name;
  std::vector<uint64_t> rank_names;
  // Devices beside MakeNcclBackend's, each of which gets a communicator after
  // that one, in this order. Each rank has as many.
  std::vector<c10::Device> further_devices;
  // A backend of MakeNcclBackend's of which the group is a part: its
  // communicator is split (ncclCommSplit) instead of made anew, which shares
  // memory and is faster. All its ranks have to take part, at the same point of
  // their order: those of one group give the same `color`, 0 or more; ranks of
  // no group call JoinNcclSplit. Null: a communicator of its own.
  c10::intrusive_ptr<c10d::Backend> split_from;
  int color = 0;
};

// Is NCCL in this build?
bool NcclIsBuilt();

// OK, or FailedPrecondition that says how to get a build with NCCL.
absl::Status CheckNcclIsBuilt();

// c10d's ProcessGroupNCCL for `size` ranks that meet through `store`, of which
// this one, `rank`, computes on `device`, a CUDA device with an index.
//
// The communicator is made here (eager initialization, PyTorch's device_id), in
// NCCL's mode without blocking, so every rank has to call it, and ranks of
// several groups in one order. The host waits until all have come, at most
// TORCH_NCCL_NONBLOCKING_TIMEOUT seconds (c10d's; 30 minutes). Then one element
// is all-reduced: NCCL connects the ranks before a step needs it; and c10d
// fills a table of groups without a lock at a group's first operation, which so
// comes from the thread that makes the groups.
//
// Works end in their stream's order: Work::wait() has the current stream wait,
// not the host (unless TORCH_NCCL_BLOCKING_WAIT is set). Messages' tags are
// ignored: they match in order. abort() is local. c10d's watchdog is on
// (TORCH_NCCL_ASYNC_ERROR_HANDLING), and so is its flight recorder of NCCL's
// works, with room for TORCH_FR_BUFFER_SIZE, else TORCH_NCCL_TRACE_BUFFER_SIZE
// (2,000; 0: off).
//
// FailedPrecondition in a build without NCCL; InvalidArgument for a device that
// is no GPU of this process's, and for a parent that is not NCCL's. For the
// thread that makes a job's groups, alone.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeNcclBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    c10::Device device, const NcclOptions& options);

// What a rank of `parent` does that is in no group of a split.
absl::Status JoinNcclSplit(const c10::intrusive_ptr<c10d::Backend>& parent,
                           c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_NCCL_BACKEND_H_
