// Listening sockets of this process: which there are, and an end to accepting
// at one that others look after.

#ifndef TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_
#define TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"

namespace tandem {

// Descriptors of all TCP sockets on which this process listens.
std::set<int> ListeningDescriptors();

// What somebody else's code has made to accept connections by epoll(7).
struct Acceptors {
  std::set<int> sockets;  // that listen
  std::set<int> epolls;   // that tell of them, and of whoever has come
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

// Moving bytes: whether connections that somebody else's code looks after carry
// anything.

// Looks at the TCP connections that epoll instances of this process watch. Not
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

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_
