// Moving bytes: whether connections that somebody else's code looks after carry
// anything.

#ifndef TANDEM_CORE_BACKEND_MOVING_BYTES_H_
#define TANDEM_CORE_BACKEND_MOVING_BYTES_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tandem {

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

#endif  // TANDEM_CORE_BACKEND_MOVING_BYTES_H_
