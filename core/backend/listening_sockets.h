// Listening sockets of this process: which there are, and an end to accepting
// at one that others look after.

#ifndef TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_
#define TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_

#include <functional>
#include <set>

#include "absl/status/status.h"

namespace tandem {

// Descriptors of all TCP sockets on which this process listens.
std::set<int> ListeningDescriptors();

// Those on which `make` has begun to listen. Callers have turns, so that each
// sees its own; whoever else begins to listen meanwhile is seen too.
std::set<int> DescriptorsOf(const std::function<void()>& make);

// From here on who accepts at `fd` when epoll(7) says so hears of no further
// connection: those that come stay in the kernel's queue, up to its length, and
// nothing reaches this process. Connections that are there notice nothing.
// NotFound where nobody watches `fd` in that way.
absl::Status StopAccepting(int fd);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_
