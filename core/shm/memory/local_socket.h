// Sockets between processes of one host and one user, for handing over file
// descriptors. Their names are abstract and random: nothing is in any folder,
// and the kernel forgets a name with its socket.

#ifndef TANDEM_CORE_SHM_MEMORY_LOCAL_SOCKET_H_
#define TANDEM_CORE_SHM_MEMORY_LOCAL_SOCKET_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <utility>
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

// Local listener for processes of one job: lets in who knows its secret, and
// drops everybody else.

// The names of abstract sockets are there for everybody to read
// (/proc/net/unix), so anybody may connect: another user, a scanner, a process
// that sends something else, or nothing, or that closes again. None of them is
// an error here, and none keeps the next one waiting: connections are accepted
// as they come, and each has a few seconds to send its first message. Where the
// process may open no more files, the one that has waited longest goes.
class AuthenticatedListener {
 public:
  struct Connection {
    LocalPeer peer;
    std::vector<OwnedFd> fds;  // received with the message
  };

  static absl::StatusOr<AuthenticatedListener> Open();

  // Where to connect (ConnectLocal).
  const std::string& name() const { return listener_.name; }
  // What each first message must begin with: 32 random characters, which should
  // reach the others on a way that is the job's own.
  const std::string& secret() const { return secret_; }

  // The next connection, of a process of this user, that has sent a message of
  // exactly `bytes` bytes, which begins with the secret, and `fds` descriptors.
  // DeadlineExceeded when none has by then: those that have come so far are
  // still heard in the next call.
  absl::StatusOr<Connection> Next(void* message, size_t bytes, int fds,
                                  SocketDeadline deadline);

 private:
  struct Waiting {
    LocalPeer peer;
    SocketDeadline until;  // it should have said something
  };

  AuthenticatedListener(LocalListener listener, std::string secret)
      : listener_(std::move(listener)), secret_(std::move(secret)) {}

  // Waits until a connection or a message comes, or `until`. True for a
  // connection; those with a message are moved to the front of `waiting_`,
  // `*speaking` of them.
  absl::StatusOr<bool> Listen(SocketDeadline until, size_t* speaking);
  absl::Status Admit();
  void DropExpired();

  LocalListener listener_;
  std::string secret_;
  std::list<Waiting> waiting_;  // the first have waited longest
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_LOCAL_SOCKET_H_
