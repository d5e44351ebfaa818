// For tests: the ranks of a group as threads of one process.

#ifndef TANDEM_CORE_TESTING_THREAD_RANKS_H_
#define TANDEM_CORE_TESTING_THREAD_RANKS_H_

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace tandem {

// The backend of groups of ranks: $TANDEM_TEST_BACKEND, or CommunicatorOptions'
// own. With "sim_nccl" ($TANDEM_SIM_ASYNC then makes simulated devices
// asynchronous) tests whose tensors lie on such a device rehearse NCCL.
std::string TestBackend();

// Calls `fn` on `n` threads, each with its rank's communicator: TestBackend()
// over a HashStore and loopback, named "world". Returns the first failure, in
// time, as "rank 2: ..."; exceptions are failures too.
//
// Collectives end by `options.timeout`, 30 s unless it is given. A thread that
// waits for something else cannot be stopped: when ranks have not returned
// after twice the timeout and a minute, the process dies with a message that
// names them.
//
//   absl::Status status = RunThreadRanks(3, [](Communicator& world) {
//     return world.Barrier();
//   });
//   EXPECT_TRUE(status.ok()) << status;
absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn);
absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn,
    const CommunicatorOptions& options);
// Each with options of its own, which `options_of` gives on the rank's thread.
absl::Status RunThreadRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn,
    const std::function<CommunicatorOptions()>& options_of,
    std::chrono::milliseconds timeout);

// Waits until `condition` holds, which tells what other ranks' threads have
// done: half a minute at most. Returns whether it holds. By this a rank comes
// later than the others, or leaves last, however busy the machine is.
bool AwaitOtherRanks(const std::function<bool()>& condition);

// The rank that the calling thread is in RunThreadRanks; 0 elsewhere.
int ThisThreadsRank();

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_THREAD_RANKS_H_
