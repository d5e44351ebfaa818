#include "core/shm/memory/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/digest/hmac_sha256.h"

namespace tandem {
namespace {

constexpr int kMaxFds = 4;

absl::Status Failed(const char* what) {
  return SystemError(errno, absl::StrCat("local socket: ", what));
}

absl::StatusOr<OwnedFd> NewSocket() {
  // Sequenced packets: one message is one message, with its descriptors.
  OwnedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Failed("socket");
  return fd;
}

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

absl::StatusOr<Address> SocketAddress(const std::string& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  // A zero first makes the name abstract: it is not in the file system.
  if (name.size() + 1 > sizeof(result.address.sun_path)) {
    return absl::InvalidArgumentError("local socket: the name is too long");
  }
  std::copy(name.begin(), name.end(), result.address.sun_path + 1);
  result.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

// connect() waits while the listener's backlog is full.
absl::Status LimitWait(int socket, SocketDeadline deadline) {
  if (deadline == SocketDeadline::max()) return absl::OkStatus();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  const int64_t ms = std::max<int64_t>(left.count(), 1);
  const timeval limit{ms / 1000, ms % 1000 * 1000};
  if (setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0) {
    return absl::OkStatus();
  }
  return Failed("SO_SNDTIMEO");
}

absl::StatusOr<pid_t> PidOfSameUser(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Failed("SO_PEERCRED");
  }
  if (peer.uid == geteuid()) return peer.pid;
  return absl::PermissionDeniedError(
      absl::StrCat("local socket: the other end is of user ", peer.uid,
                   ", this process of user ", geteuid()));
}

absl::StatusOr<LocalPeer> Checked(OwnedFd fd) {
  TANDEM_ASSIGN_OR_RETURN(const pid_t pid, PidOfSameUser(fd.get()));
  return LocalPeer{std::move(fd), pid};
}

absl::Status AwaitInput(int fd, SocketDeadline deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd one{fd, POLLIN, 0};
    const int ready = poll(
        &one, 1,
        static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 1 << 30)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Failed("poll");
    if (ready == 0 && left.count() <= 0) {
      return absl::DeadlineExceededError("local socket: timed out");
    }
  }
}

std::vector<OwnedFd> ReceivedFds(msghdr* message) {
  std::vector<OwnedFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr;
       part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

absl::StatusOr<std::string> RandomCharacters() {
  TANDEM_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(16));
  return absl::BytesToHexString(bytes);
}

absl::StatusOr<LocalListener> ListenLocal(int backlog) {
  LocalListener listener;
  TANDEM_ASSIGN_OR_RETURN(listener.fd, NewSocket());
  TANDEM_ASSIGN_OR_RETURN(const std::string random, RandomCharacters());
  listener.name = absl::StrCat("tandem-", random);
  TANDEM_ASSIGN_OR_RETURN(const Address at, SocketAddress(listener.name));
  const auto* address = reinterpret_cast<const sockaddr*>(&at.address);
  if (bind(listener.fd.get(), address, at.length) != 0) return Failed("bind");
  if (listen(listener.fd.get(), backlog) != 0) return Failed("listen");
  return listener;
}

absl::StatusOr<LocalPeer> AcceptLocal(int listener, SocketDeadline deadline) {
  TANDEM_RETURN_IF_ERROR(AwaitInput(listener, deadline));
  OwnedFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  // The same as ECONNABORTED: whoever has knocked is gone.
  if (!fd && errno == EPROTO) {
    return absl::UnavailableError(Failed("accept").message());
  }
  if (!fd) return Failed("accept");
  return Checked(std::move(fd));
}

absl::StatusOr<LocalPeer> ConnectLocal(const std::string& name,
                                       SocketDeadline deadline) {
  TANDEM_ASSIGN_OR_RETURN(OwnedFd fd, NewSocket());
  TANDEM_ASSIGN_OR_RETURN(const Address at, SocketAddress(name));
  const auto* address = reinterpret_cast<const sockaddr*>(&at.address);
  TANDEM_RETURN_IF_ERROR(LimitWait(fd.get(), deadline));
  if (connect(fd.get(), address, at.length) != 0) {
    if (errno == EAGAIN)
      return absl::DeadlineExceededError("local socket: full");
    return absl::UnavailableError(Failed("connect").message());
  }
  return Checked(std::move(fd));
}

absl::Status SendWithFds(int socket, const void* data, size_t bytes,
                         absl::Span<const int> fds) {
  iovec body{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(Failed("sendmsg").message());
}

absl::StatusOr<std::vector<OwnedFd>> ReceiveWithFds(int socket, void* data,
                                                    size_t bytes, int fds,
                                                    SocketDeadline deadline) {
  TANDEM_RETURN_IF_ERROR(AwaitInput(socket, deadline));
  iovec body{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return absl::UnavailableError(Failed("recvmsg").message());
  if (got == 0) {
    return absl::UnavailableError("local socket: the other end has closed");
  }
  std::vector<OwnedFd> received = ReceivedFds(&message);
  if (got == static_cast<ssize_t>(bytes) &&
      received.size() == static_cast<size_t>(fds)) {
    return received;
  }
  return absl::DataLossError(
      absl::StrCat("local socket: ", got, " bytes and ", received.size(),
                   " descriptors came, ", bytes, " and ", fds, " expected"));
}

namespace {

using Clock = std::chrono::steady_clock;

// A rank sends its message right after it has connected.
constexpr std::chrono::seconds kHandshakeTimeout(5);
// Beyond so many that say nothing, the one that has waited longest goes.
constexpr size_t kMostWaiting = 256;
constexpr int kBacklog = 4096;  // the system has a limit of its own

int PollTime(SocketDeadline until) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
}

}  // namespace

absl::StatusOr<AuthenticatedListener> AuthenticatedListener::Open() {
  TANDEM_ASSIGN_OR_RETURN(LocalListener listener, ListenLocal(kBacklog));
  TANDEM_ASSIGN_OR_RETURN(std::string secret, RandomCharacters());
  return AuthenticatedListener(std::move(listener), std::move(secret));
}

absl::StatusOr<AuthenticatedListener::Connection> AuthenticatedListener::Next(
    void* message, size_t bytes, int fds, SocketDeadline deadline) {
  while (true) {
    const SocketDeadline until =
        waiting_.empty() ? deadline
                         : std::min(deadline, waiting_.front().until);
    size_t speaking = 0;
    TANDEM_ASSIGN_OR_RETURN(const bool knocks, Listen(until, &speaking));
    for (; speaking > 0; --speaking) {
      Connection connection{std::move(waiting_.front().peer), {}};
      waiting_.pop_front();
      auto received = ReceiveWithFds(connection.peer.fd.get(), message, bytes,
                                     fds, Clock::now());
      if (!received.ok() ||
          std::memcmp(message, secret_.data(), secret_.size()) != 0) {
        continue;
      }
      connection.fds = *std::move(received);
      return connection;
    }
    if (knocks) TANDEM_RETURN_IF_ERROR(Admit());
    DropExpired();
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError("local socket: timed out");
    }
  }
}

absl::StatusOr<bool> AuthenticatedListener::Listen(SocketDeadline until,
                                                   size_t* speaking) {
  std::vector<pollfd> watched = {{listener_.fd.get(), POLLIN, 0}};
  for (const Waiting& each : waiting_) {
    watched.push_back({each.peer.fd.get(), POLLIN, 0});
  }
  const int ready = poll(watched.data(), watched.size(), PollTime(until));
  if (ready < 0 && errno != EINTR) {
    return absl::ErrnoToStatus(errno, "local socket: poll");
  }
  if (ready <= 0) return false;
  std::list<Waiting> ones;
  auto each = waiting_.begin();
  for (size_t i = 1; i < watched.size(); ++i) {
    const auto one = each++;
    if (watched[i].revents != 0) ones.splice(ones.end(), waiting_, one);
  }
  *speaking = ones.size();
  waiting_.splice(waiting_.begin(), ones);
  return watched[0].revents != 0;
}

absl::Status AuthenticatedListener::Admit() {
  absl::StatusOr<LocalPeer> peer =
      AcceptLocal(listener_.fd.get(), Clock::now());
  if (peer.ok()) {
    waiting_.push_back({*std::move(peer), Clock::now() + kHandshakeTimeout});
    if (waiting_.size() > kMostWaiting) waiting_.pop_front();
    return absl::OkStatus();
  }
  const absl::Status& error = peer.status();
  // Another user's, or one that has gone again.
  if (absl::IsPermissionDenied(error) || absl::IsUnavailable(error) ||
      absl::IsDeadlineExceeded(error)) {
    return absl::OkStatus();
  }
  if (!absl::IsResourceExhausted(error) || waiting_.empty()) return error;
  // Without descriptors: the next one has that of who has waited longest.
  waiting_.pop_front();
  return absl::OkStatus();
}

void AuthenticatedListener::DropExpired() {
  const auto now = Clock::now();
  while (!waiting_.empty() && waiting_.front().until <= now) {
    waiting_.pop_front();
  }
}

}  // namespace tandem
