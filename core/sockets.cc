#include "core/sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const std::string& host, int port,
                                    int socket_type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot resolve the address \"", host, "\": ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

absl::Status BindError(int error, const std::string& host, int port) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", port, " on ", host,
                     " is in use: choose another port, or 0 for any free one"));
  }
  if (error == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", host, ":", port,
        ": this is not an address of this machine, and the rank that serves "
        "the store must run where the master address points"));
  }
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot listen on ", host, ":", port));
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// The socket's own end of the connection.
absl::StatusOr<sockaddr_storage> SocketName(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return absl::ErrnoToStatus(errno, "getsockname");
  }
  return address;
}

// Tries one address for at most `patience`; what went wrong, as errno.
int TryToConnect(const addrinfo& address, milliseconds patience) {
  const int fd =
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
             address.ai_protocol);
  if (fd < 0) return errno;
  absl::Cleanup close_fd = [fd] { close(fd); };
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{fd, POLLOUT, 0};
  if (poll(&ready, 1, static_cast<int>(patience.count())) <= 0) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

// Tries every address of `host` once.
absl::Status TryToReach(const std::string& host, int port,
                        milliseconds patience) {
  TANDEM_ASSIGN_OR_RETURN(AddressList list, Resolve(host, port, SOCK_STREAM));
  int error = 0;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    error = TryToConnect(*one, patience);
    if (error == 0) return absl::OkStatus();
  }
  return absl::ErrnoToStatus(error, "the last try");
}

}  // namespace

absl::StatusOr<BoundSocket> ListenOn(const std::string& host, int port) {
  TANDEM_ASSIGN_OR_RETURN(AddressList list, Resolve(host, port, SOCK_STREAM));
  const int fd =
      socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, list->ai_protocol);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  // A port whose last owner has just ended may be used again at once.
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, list->ai_addr, list->ai_addrlen) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    return BindError(errno, host, port);
  }
  TANDEM_ASSIGN_OR_RETURN(sockaddr_storage address, SocketName(fd));
  std::move(close_fd).Cancel();
  return BoundSocket{fd, PortOf(address)};
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host) {
  // Connecting a datagram socket asks the kernel for a route, nothing more.
  TANDEM_ASSIGN_OR_RETURN(AddressList list, Resolve(host, 9, SOCK_DGRAM));
  const int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  if (connect(fd, list->ai_addr, list->ai_addrlen) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("no route to ", host));
  }
  TANDEM_ASSIGN_OR_RETURN(sockaddr_storage address, SocketName(fd));
  char text[NI_MAXHOST];
  const int error =
      getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof(address), text,
                  sizeof(text), nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return absl::InternalError(gai_strerror(error));
  return std::string(text);
}

absl::Status WaitForListener(const std::string& host, int port,
                             milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  milliseconds pause(10);
  while (true) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - Clock::now());
    const milliseconds patience = std::max(left, milliseconds(1));
    const absl::Status reached = TryToReach(host, port, patience);
    if (reached.ok()) return reached;
    if (Clock::now() + pause >= end) {
      return absl::DeadlineExceededError(reached.message());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(500));
  }
}

}  // namespace tandem
