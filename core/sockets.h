// Plain TCP sockets: to listen on one address, to find one's own, to wait for
// somebody else's.

#ifndef TANDEM_CORE_SOCKETS_H_
#define TANDEM_CORE_SOCKETS_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

struct BoundSocket {
  int fd = -1;  // the caller's to close; closed on exec
  int port = 0;
};

// A TCP socket that listens on `host` (a name or address of this machine) and
// `port` (0: the kernel's choice) alone. InvalidArgument when `host` is unknown
// or not of this machine; AlreadyExists when the port is in use.
absl::StatusOr<BoundSocket> ListenOn(const std::string& host, int port);

// The address of this machine from which packets to `host` leave, as text.
// Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// Waits until something accepts connections at `host`:`port`, and leaves it
// alone then. After `timeout`, DeadlineExceeded with the last refusal.
absl::Status WaitForListener(const std::string& host, int port,
                             std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_SOCKETS_H_
