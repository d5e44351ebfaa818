#include "core/store/sockets.h"

#include <glog/logging.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// While nobody listens: how long one address is tried, how long a name may be
// unknown (a name server may be late too), and how often to say so.
constexpr milliseconds kOneTry = std::chrono::seconds(5);
constexpr milliseconds kUnresolved = std::chrono::seconds(10);
constexpr milliseconds kReport = std::chrono::seconds(10);

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
  return SystemError(error, absl::StrCat("cannot listen on ", host, ":", port));
}

int AddressPort(const sockaddr_storage& address) {
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

// The address itself, not the port.
bool IsLoopback(const addrinfo& address) {
  if (address.ai_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(
        &reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr);
  }
  const auto* four = reinterpret_cast<const sockaddr_in*>(address.ai_addr);
  return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

// Stands for all interfaces: 0.0.0.0 and ::.
bool IsEvery(const addrinfo& address) {
  if (address.ai_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(
        &reinterpret_cast<const sockaddr_in6*>(address.ai_addr)->sin6_addr);
  }
  const auto* four = reinterpret_cast<const sockaddr_in*>(address.ai_addr);
  return four->sin_addr.s_addr == htonl(INADDR_ANY);
}

absl::Status CheckNotEvery(const addrinfo* list, const std::string& host) {
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (!IsEvery(*one)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the address \"", host,
        "\" stands for all interfaces, and a store is served on one alone: "
        "give an address of the machine that serves it, which other ranks "
        "reach"));
  }
  return absl::OkStatus();
}

bool IsLiteral(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

std::string AddressText(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  const int error = getnameinfo(address, length, text, sizeof(text), nullptr, 0,
                                NI_NUMERICHOST);
  return error == 0 ? text : gai_strerror(error);
}

// A socket that listens on this address, or errno.
struct Listening {
  int fd = -1;
  int error = 0;
};

Listening TryToListen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC,
                        address.ai_protocol);
  if (fd < 0) return {-1, errno};
  // A port whose last owner has just ended may be used again at once.
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 &&
      listen(fd, SOMAXCONN) == 0) {
    return {fd, 0};
  }
  const int error = errno;
  close(fd);
  return {-1, error};
}

// What is sent to a loopback interface that is down leaves by the default
// route, and never comes back, or has no route at all.
bool IsLoopbackUp() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return true;  // nobody knows
  bool is_up = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    is_up = is_up || ((one->ifa_flags & IFF_LOOPBACK) != 0 &&
                      (one->ifa_flags & IFF_UP) != 0);
  }
  freeifaddrs(all);
  return is_up;
}

// Why this machine has no way to itself, which nothing that comes up later will
// change; "": a later try may succeed.
std::string WhyNever(int error, const addrinfo& address) {
  if (!IsLoopback(address)) return "";
  if (error == ENETUNREACH || !IsLoopbackUp()) {
    return "its loopback interface is down (ip link set lo up)";
  }
  // For IPv4, EADDRNOTAVAIL says that no port is free at the moment.
  const bool is_off = error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
  if (address.ai_family != AF_INET6 || !is_off) return "";
  return "IPv6 is off on its loopback interface "
         "(sysctl net.ipv6.conf.lo.disable_ipv6): give 127.0.0.1, or turn it "
         "on";
}

// Connects `fd` to one address within `patience`; what went wrong, as errno.
int TryToConnect(int fd, const addrinfo& address, milliseconds patience) {
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

// Tries every address of `host` once, until `end`. InvalidArgument when there
// is none, FailedPrecondition when no try can succeed.
absl::StatusOr<OwnedFd> TryToReach(const std::string& host, int port,
                                   Clock::time_point end) {
  TANDEM_ASSIGN_OR_RETURN(AddressList list, Resolve(host, port, SOCK_STREAM));
  int error = 0;
  std::string why;  // of the last one
  bool is_in_vain = true;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - Clock::now());
    OwnedFd fd(socket(one->ai_family,
                      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                      one->ai_protocol));
    error = fd ? TryToConnect(fd.get(), *one,
                              std::clamp(left, milliseconds(1), kOneTry))
               : errno;
    if (error == 0) return fd;
    why = WhyNever(error, *one);
    is_in_vain = is_in_vain && !why.empty();
  }
  if (is_in_vain) {
    return absl::FailedPreconditionError(
        absl::StrCat("this machine cannot reach ", host, ": ", why));
  }
  return SystemError(error, "the last try");
}

}  // namespace

absl::StatusOr<BoundSocket> ListenOn(const std::string& host, int port) {
  TANDEM_ASSIGN_OR_RETURN(AddressList list, Resolve(host, port, SOCK_STREAM));
  TANDEM_RETURN_IF_ERROR(CheckNotEvery(list.get(), host));
  Listening listening;
  int first_error = 0;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    listening = TryToListen(*one);
    if (listening.error == 0) break;
    if (first_error == 0) first_error = listening.error;
    // Others would come to whoever has the port, not to our next address.
    if (listening.error == EADDRINUSE) {
      first_error = EADDRINUSE;
      break;
    }
  }
  if (listening.fd < 0) return BindError(first_error, host, port);
  const int fd = listening.fd;
  absl::Cleanup close_fd = [fd] { close(fd); };
  TANDEM_ASSIGN_OR_RETURN(sockaddr_storage address, SocketName(fd));
  std::move(close_fd).Cancel();
  return BoundSocket{fd, AddressPort(address)};
}

absl::Status CheckOthersCanReach(const std::string& host) {
  if (IsLiteral(host)) return absl::OkStatus();
  const absl::StatusOr<AddressList> list = Resolve(host, 0, SOCK_STREAM);
  if (!list.ok() || !IsLoopback(**list)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the master address \"", host, "\" is ",
      AddressText((*list)->ai_addr, (*list)->ai_addrlen),
      " on this machine (see /etc/hosts), which other nodes cannot reach: give "
      "--master_addr=ADDRESS, or MASTER_ADDR where the environment has it, on "
      "every node: an address of this machine that they reach (127.0.0.1 where "
      "all nodes are this machine)"));
}

absl::Status CheckOneInterface(const std::string& host) {
  if (!IsLiteral(host)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const AddressList list,
                          Resolve(host, 0, SOCK_STREAM));
  return CheckNotEvery(list.get(), host);
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host) {
  // Connecting a datagram socket asks the kernel for a route, nothing more.
  TANDEM_ASSIGN_OR_RETURN(AddressList list, Resolve(host, 9, SOCK_DGRAM));
  const int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError(errno, "cannot make a socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  if (connect(fd, list->ai_addr, list->ai_addrlen) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("no route to ", host));
  }
  TANDEM_ASSIGN_OR_RETURN(sockaddr_storage address, SocketName(fd));
  return AddressText(reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

absl::StatusOr<OwnedFd> ConnectWhenServed(const std::string& host, int port,
                                          milliseconds timeout) {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end = begin + timeout;
  Clock::time_point resolved = begin;
  Clock::time_point reported = begin;
  milliseconds pause(10);
  while (true) {
    absl::StatusOr<OwnedFd> reached = TryToReach(host, port, end);
    if (reached.ok() || absl::IsFailedPrecondition(reached.status())) {
      return reached;
    }
    const Clock::time_point now = Clock::now();
    if (!absl::IsInvalidArgument(reached.status())) resolved = now;
    if (now - resolved >= kUnresolved) return reached;
    if (now + pause >= end) {
      return absl::DeadlineExceededError(reached.status().message());
    }
    if (now - reported >= kReport) {
      LOG(WARNING) << "waiting for " << host << ":" << port << ": "
                   << reached.status().message();
      reported = now;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(500));
  }
}

}  // namespace tandem
