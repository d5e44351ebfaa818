// Sockets between processes of one host and one user, for handing over file
// descriptors. Their names are abstract and random: nothing is in any folder,
// and the kernel forgets a name with its socket.

#ifndef TANDEM_CORE_SHM_MEMORY_LOCAL_SOCKET_H_
#define TANDEM_CORE_SHM_MEMORY_LOCAL_SOCKET_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/shm/memory/shared_memory.h"

namespace tandem {

using SocketDeadline = std::chrono::steady_clock::time_point;

struct LocalListener {
  OwnedFd fd;
  std::string name;  // for ConnectLocal
};

// 32 random characters.
absl::StatusOr<std::string> RandomCharacters();

// Listens under a new random name.
absl::StatusOr<LocalListener> ListenLocal(int backlog);

struct LocalPeer {
  OwnedFd fd;
  pid_t pid = 0;  // as this process sees it; 0 when it cannot
};

// The next connection. PermissionDenied when it is another user's, Unavailable
// when it has gone again; DeadlineExceeded when none comes.
absl::StatusOr<LocalPeer> AcceptLocal(int listener, SocketDeadline deadline);

// Unavailable when nobody listens under `name`; PermissionDenied when another
// user does; DeadlineExceeded when others are in line and not let in.
absl::StatusOr<LocalPeer> ConnectLocal(
    const std::string& name, SocketDeadline deadline = SocketDeadline::max());

// One message with file descriptors, which stay the sender's own.
absl::Status SendWithFds(int socket, const void* data, size_t bytes,
                         absl::Span<const int> fds);

// Receives a message of exactly `bytes` bytes and `fds` descriptors.
// Unavailable when the other end has closed, DeadlineExceeded when nothing
// comes, DataLoss when something else does.
absl::StatusOr<std::vector<OwnedFd>> ReceiveWithFds(int socket, void* data,
                                                    size_t bytes, int fds,
                                                    SocketDeadline deadline);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_LOCAL_SOCKET_H_
