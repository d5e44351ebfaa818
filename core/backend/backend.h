// Communication backends: c10d backends by name, which move the bytes of a
// communicator.

#ifndef TANDEM_CORE_BACKEND_BACKEND_H_
#define TANDEM_CORE_BACKEND_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/backend/communicator_options.h"
#include "core/store/store.h"

namespace tandem {

// Host identity, by which ranks know whether they can share memory: the same
// text for processes that run on one kernel, under one host name and
// in one network namespace (whose local sockets they see), and for no others:
// two containers of a machine count as two hosts unless they share these.
std::string HostIdentity();

// Whether processes with these identities have one loopback interface, as
// containers may that have a name each. Names that are no HostIdentity() are of
// one host, whose ranks a test tells apart.
bool SharesLoopback(absl::string_view one, absl::string_view other);

// Where a group stands.
struct GroupPlace {
  StorePtr store;  // keys of this group alone
  int rank = 0;
  std::vector<std::string> hosts;  // each rank's: the same one shares memory
  std::string name;                // another group's nowhere in the job
  StorePtr job;                    // keys that all of the job's groups share

  int size() const { return static_cast<int>(hosts.size()); }
};

// A process group of ranks that meet through `place.store`, on the backends
// that `options.backend` names (backend_names.h): one for CPU tensors, and
// maybe one for those of a device, whose communicator is made at once if
// `options.device` says of which. InvalidArgument for an unknown name lists the
// known ones. A further backend is one more file like gloo_backend.cc and one
// more line in backend.cc and backend_names.cc. A backend for CPU tensors must
// do this:
//   collectives run in the order in which they were started;
//   Work::wait(timeout) throws when the timeout passes, the work goes on, and a
//   later wait() tells its end; wait() ends by `options.timeout` or soon after;
//   Work::getFuture() completes on the thread that completes the work, before
//   wait() returns, or throws;
//   abort() ends what runs and what is started later, here and on the other
//   ranks, with an error, at once; it may be called twice.
// A backend for a device's tensors must do this:
//   what it is given runs on streams; Work::wait() orders streams and does not
//   hold up the host;
//   Work::isCompleted() and then exception() tell of its end;
//   abort() does, on this rank, what it does there;
//   shutdown() ends it, where all ranks call it.
absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> MakeProcessGroup(
    const GroupPlace& place, const CommunicatorOptions& options);

// Backend::abort() of the group's backends, the host's first. Where a backend
// can tell the other ranks why (shm can), their errors say `reason`. Takes
// IssueMutex() for the host's alone. A device's, which may have to wait for
// what its streams run, is not waited for for longer than a second: it goes on
// on a thread of its own. Errors are nobody's.
void AbortBackends(c10d::ProcessGroup& group, const std::string& reason);

// Shuts the devices' backends of a whole group down that nobody needs any more,
// together with the other ranks: NCCL gives back memory then and ends its
// threads. A backend that does not end within `timeout`, since a rank is gone,
// is aborted. Works must have ended.
void CloseBackends(c10d::ProcessGroup& group,
                   std::chrono::milliseconds timeout);

// Unavailable when another rank has died, given up ("rank 1 gave up: REASON")
// or left, as far as the host's backend knows (shm does, on one host): for who
// waits for a stream, which does not.
absl::Status CheckPeers(c10d::ProcessGroup& group);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BACKEND_H_
