// Listening sockets of this process: which there are, and shutting one that
// others look after.

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

// From here on the kernel drops who wants to connect to `fd`: it looks as if
// nobody were there, and nothing reaches this process. Connections that are
// there, and who accepts at `fd`, notice nothing. (A socket filter of classic
// BPF, socket(7), which needs no privilege.)
absl::Status ShutToNewConnections(int fd);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_LISTENING_SOCKETS_H_
