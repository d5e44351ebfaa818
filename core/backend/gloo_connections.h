// Connections of Gloo: the sockets on which it listens and an end to accepting
// there, whether its connections carry bytes, and whether the other end of each
// is the rank that it should be.

#ifndef TANDEM_CORE_BACKEND_GLOO_CONNECTIONS_H_
#define TANDEM_CORE_BACKEND_GLOO_CONNECTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/status/status.h"

namespace tandem {

// Descriptors of all TCP sockets on which this process listens.
std::set<int> ListeningDescriptors();

// What somebody else's code has made to accept connections by epoll(7).
struct Acceptors {
  std::set<int> sockets;  // the listening ones
  std::set<int> epolls;   // their watchers, and those of connections
};

// The acceptors that `make` has made. Callers have turns: each sees its own.
// What other threads make meanwhile is not taken for it, unless they, too, make
// an epoll instance that watches a new socket; they may close what they have.
Acceptors NewAcceptors(const std::function<void()>& make);

// Descriptors that an epoll instance watches.
std::set<int> WatchedBy(int epoll);

// From here on who accepts at `fd` when epoll(7) says so hears of no further
// connection: those that come stay in the kernel's queue, up to its length, and
// nothing reaches this process. Connections that are there notice nothing.
// NotFound where nobody watches `fd` in that way.
absl::Status StopAccepting(int fd);

// Tells whether connections that somebody else's code looks after carry
// anything: the TCP connections that epoll instances of this process watch. Not
// thread-safe.
class MovingBytes {
 public:
  explicit MovingBytes(std::set<int> epolls) : epolls_(std::move(epolls)) {}

  // Whether one has carried more than a few kilobytes, to its other end or from
  // it, since the last call (the first time: since it was connected). What is
  // sent and not acknowledged does not count.
  bool HaveMoved();

 private:
  const std::set<int> epolls_;
  std::map<int, uint64_t> carried_;  // by descriptor
};

// Pair proof: each rank sends each other one a code for the two of them
// (HMAC-SHA256), under a key that rank 0 leaves on the group's own `store`. So
// whoever has taken a rank's place in a connection, and cannot read the store,
// is found out: Unavailable names the rank. A peer that stays silent is found
// out by the group's timeout. A collective (one all-to-all on `group`), which
// all ranks of the group call once. Throws what they throw.
absl::Status ProvePairs(c10d::Backend& group, c10d::Store& store);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_GLOO_CONNECTIONS_H_
