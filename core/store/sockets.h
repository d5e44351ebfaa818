// Plain TCP sockets: to listen on one address, to find one's own, to connect to
// somebody else's.

#ifndef TANDEM_CORE_STORE_SOCKETS_H_
#define TANDEM_CORE_STORE_SOCKETS_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/owned_fd.h"

namespace tandem {

struct BoundSocket {
  int fd = -1;  // the caller's to close; closed on exec
  int port = 0;
};

// A TCP socket that listens on `host` (a name or address of this machine) and
// `port` (0: the kernel's choice) alone: on the first of its addresses that
// this machine has. InvalidArgument when `host` is unknown, not of this
// machine, or stands for all interfaces (0.0.0.0); AlreadyExists when the port
// is in use.
absl::StatusOr<BoundSocket> ListenOn(const std::string& host, int port);

// InvalidArgument when `host` is a name that this machine takes for a loopback
// address (localhost; Debian gives a machine's own name 127.0.1.1), so that
// what listens there is out of other machines' reach. An address is taken as
// meant; a name that cannot be resolved is left to ListenOn.
absl::Status CheckOthersCanReach(const std::string& host);

// InvalidArgument when `host` is an address that stands for all interfaces
// (0.0.0.0, ::), of which tandem's stores are served on none. A name is left to
// ListenOn.
absl::Status CheckOneInterface(const std::string& host);

// The address of this machine from which packets to `host` leave, as text.
// Sends nothing.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

// A connection to `host`:`port`, as soon as something accepts one. Logs every
// 10 s that it waits. After `timeout`, DeadlineExceeded with the last refusal;
// InvalidArgument when `host` could not be resolved for 10 s;
// FailedPrecondition when it is this machine's loopback, which is down, or has
// no IPv6. The socket does not block, and is closed on exec.
absl::StatusOr<OwnedFd> ConnectWhenServed(const std::string& host, int port,
                                          std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_SOCKETS_H_
