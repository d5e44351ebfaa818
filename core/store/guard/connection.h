// Client's side of a connection to a guarded server: handshake, then requests
// with their answers.

#ifndef TANDEM_CORE_STORE_GUARD_CONNECTION_H_
#define TANDEM_CORE_STORE_GUARD_CONNECTION_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/owned_fd.h"
#include "core/store/guard/protocol.h"

namespace tandem {

// Thread-safe: calls stand in line.
class GuardedConnection {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Shakes hands over `fd`, which is connected. FailedPrecondition when the
  // server, or this process, does not know the other's secret, and when what it
  // says first is no greeting; DeadlineExceeded when it says nothing: it asks
  // for no secret, or is stopped for a while; Unavailable when the connection
  // is lost: the server may be there no longer, or be beset, so another try may
  // succeed.
  static absl::StatusOr<std::unique_ptr<GuardedConnection>> Open(
      OwnedFd fd, const std::string& secret, Deadline deadline);

  // Has the server do a request (core/store/guard/key_values.h), and returns
  // what was asked for. Unavailable when the connection is lost, now or
  // before; DeadlineExceeded when no answer comes: the server may be stopped
  // for a while, and does the request later, and those that follow; Internal
  // with the server's words for an error; InvalidArgument for a request that is
  // too long.
  absl::StatusOr<std::vector<std::string>> Call(
      const std::vector<std::string>& request, Deadline deadline);

 private:
  GuardedConnection(OwnedFd fd, const SessionKeys& keys)
      : fd_(std::move(fd)), sealer_(keys.client), opener_(keys.server) {}

  absl::StatusOr<std::string> Exchange(const std::string& request,
                                       Deadline deadline);
  absl::StatusOr<std::string> NextAnswer(Deadline deadline);

  absl::Mutex mutex_;
  OwnedFd fd_;  // none when it is lost
  FrameSealer sealer_;
  FrameOpener opener_;
  int owed_ = 0;  // answers to calls that nobody waits for any more
};

// Whether somebody who asks for a secret is at the other end of `fd`, which has
// been connected to just now. Reads what comes within `patience`.
bool AsksForSecret(int fd, std::chrono::milliseconds patience);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_CONNECTION_H_
