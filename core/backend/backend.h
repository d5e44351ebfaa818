// Communication backends: c10d backends by name, which move the bytes of a
// communicator.

#ifndef TANDEM_CORE_BACKEND_BACKEND_H_
#define TANDEM_CORE_BACKEND_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/communicator_options.h"

namespace tandem {

// A process group of ranks that meet through `store`, on the backend that
// `options.backend` names: "shm" or "gloo", both for CPU tensors.
// `hosts` tells each rank's host: those with the same one share memory.
// InvalidArgument for an unknown name lists the known ones. A further backend
// is one more file like gloo_backend.cc and one more line in backend.cc. Of a
// backend is asked:
//   collectives run in the order in which they were started;
//   Work::wait(timeout) throws when the timeout passes, the work goes on, and a
//   later wait() tells its end; wait() ends by `options.timeout` or soon after;
//   Work::getFuture() completes on the thread that completes the work, before
//   wait() returns, or throws;
//   abort() ends what runs and what is started later, here and on the other
//   ranks, with an error, at once; it may be called twice.
absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> MakeProcessGroup(
    const c10::intrusive_ptr<c10d::Store>& store, int rank,
    const std::vector<std::string>& hosts, const CommunicatorOptions& options);

// Backend::abort() of the group's backends. Where a backend can tell the other
// ranks why (shm can), their errors say `reason`.
void AbortBackends(c10d::ProcessGroup& group, const std::string& reason);

// Does an all-reduce of this backend take c10d's PREMUL_SUM, which multiplies
// each rank's tensor as it is summed?
bool BackendMultiplies(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BACKEND_H_
