#include "core/store/guard/server.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/digest/hmac_sha256.h"
#include "core/store/guard/key_values.h"
#include "core/store/guard/protocol.h"
#include "core/store/guard/session.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLogPause = std::chrono::seconds(10);
// Without descriptors nobody is let in for so long.
constexpr milliseconds kShut(100);
constexpr int kMostAtOnce = 64;  // then the others have their turn

std::string AddressText(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host,
                  sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return absl::StrCat(host, ":", port);
}

// What the server's thread has.
class Loop {
 public:
  Loop(OwnedFd listener, OwnedFd epoll, int stop, std::string secret)
      : listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        stop_(stop),
        secret_(std::move(secret)) {}

  absl::Status Prepare() {
    const int fd = listener_.get();
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        !Watch(EPOLL_CTL_ADD, stop_, EPOLLIN) ||
        !Watch(EPOLL_CTL_ADD, fd, EPOLLIN)) {
      return SystemError(errno, "serve a store");
    }
    return absl::OkStatus();
  }

  void Run() {
    std::array<epoll_event, 64> events;
    while (true) {
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                   PollTime(Clock::now()));
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        if (fd == stop_) return;
        fd == listener_.get() ? Admit() : Serve(fd);
      }
      const Clock::time_point now = Clock::now();
      connections_.RemoveSlow(now);
      TellOfStrangers(now);
      if (opens_at_ <= now) SetOpen(true);
    }
  }

 private:
  bool Watch(int operation, int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  }

  // Somebody waits in vain, the door is shut, or a stranger is yet to be
  // logged.
  int PollTime(Clock::time_point now) const {
    Clock::time_point next = std::min(connections_.NextEnd(), opens_at_);
    if (connections_.strangers() != told_) next = std::min(next, logs_at_);
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<milliseconds>(next - now).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
  }

  void SetOpen(bool open) {
    Watch(EPOLL_CTL_MOD, listener_.get(), open ? uint32_t{EPOLLIN} : 0);
    opens_at_ = open ? Clock::time_point::max() : Clock::now() + kShut;
  }

  void Admit() {
    for (int i = 0; i < kMostAtOnce; ++i) {
      sockaddr_storage address{};
      socklen_t length = sizeof(address);
      OwnedFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                         &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd) {
        Greet(std::move(fd), AddressText(address, length));
      } else if (errno == EAGAIN) {
        return;
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                 errno == ENOMEM) {
        if (!connections_.RemoveOldestUnknown()) return SetOpen(false);
      }
    }
  }

  void Greet(OwnedFd fd, const std::string& address) {
    absl::StatusOr<std::string> nonce = RandomBytes(kNonceBytes);
    const int raw = fd.get();
    const int yes = 1;
    setsockopt(raw, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (!nonce.ok() || !Watch(EPOLL_CTL_ADD, raw, EPOLLIN)) return;
    connections_.Add({std::move(fd), address, Session(secret_, *nonce)},
                     Clock::now());
    if (ServerConnection* connection = connections_.Find(raw))
      Send(*connection);
  }

  void Serve(int fd) {
    ServerConnection* const connection = connections_.Find(fd);
    if (connection == nullptr) return;  // gone since the events were read
    const bool was_member = connection->session.is_member();
    const bool listens = !connection->is_over && !connection->must_read;
    if (listens && !Receive(*connection)) return connections_.Remove(fd);
    if (!was_member && connection->session.is_member())
      connections_.NoteMember(fd);
    Send(*connection);
    GoOn(fd);
  }

  // With what one asked for while there was too much to send.
  void GoOn(int fd) {
    for (ServerConnection* connection = connections_.Find(fd);
         connection != nullptr && !connection->is_over &&
         !connection->must_read && connection->session.has_more();
         connection = connections_.Find(fd)) {
      connection->is_over = !connection->session.Take("", &table_);
      Send(*connection);
    }
  }

  // False when the connection has ended.
  bool Receive(ServerConnection& connection) {
    const ssize_t got =
        recv(connection.fd.get(), buffer_.data(), buffer_.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.is_over = !connection.session.Take(
        absl::string_view(buffer_.data(), static_cast<size_t>(got)), &table_);
    return true;
  }

  void Send(ServerConnection& connection) {
    std::string& output = connection.session.output();
    const int fd = connection.fd.get();
    const ssize_t sent =
        output.empty() ? 0
                       : send(fd, output.data(), output.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return connections_.Remove(fd);
    }
    output.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    if (output.empty() && connection.is_over) return connections_.Remove(fd);
    // A member that does not read is not heard until it does.
    if (connection.must_read == !output.empty()) return;
    connection.must_read = !output.empty();
    Watch(EPOLL_CTL_MOD, fd, connection.must_read ? EPOLLOUT : EPOLLIN);
  }

  void TellOfStrangers(Clock::time_point now) {
    if (connections_.strangers() == told_) return;
    table_[kStrangersKey] = connections_.DescribeRejected();
    if (now < logs_at_) return;
    LOG(WARNING) << connections_.DescribeRejected();
    told_ = connections_.strangers();
    logs_at_ = now + kLogPause;
  }

  const OwnedFd listener_;
  const OwnedFd epoll_;
  const int stop_;
  const std::string secret_;
  KeyValues table_;
  ServerConnections connections_;
  std::array<char, 65536> buffer_;
  Clock::time_point opens_at_ = Clock::time_point::max();
  Clock::time_point logs_at_ = Clock::time_point::min();
  int told_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GuardServer>> GuardServer::Start(
    OwnedFd listener, const std::string& secret) {
  CHECK(!secret.empty());
  OwnedFd stop(eventfd(0, EFD_CLOEXEC));
  OwnedFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!stop || !epoll) return SystemError(errno, "serve a store");
  auto loop = std::make_unique<Loop>(std::move(listener), std::move(epoll),
                                     stop.get(), secret);
  TANDEM_RETURN_IF_ERROR(loop->Prepare());
  std::unique_ptr<GuardServer> server(new GuardServer(std::move(stop)));
  server->thread_ = std::thread([loop = std::move(loop)] { loop->Run(); });
  return server;
}

GuardServer::~GuardServer() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

}  // namespace tandem
