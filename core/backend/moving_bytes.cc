#include "core/backend/moving_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "core/backend/listening_sockets.h"

namespace tandem {
namespace {

// More than a look at a connection sends, and less than a slow one carries of a
// transfer within half a second.
constexpr uint64_t kAFew = 4096;

// 0: no connection of TCP.
uint64_t CarriedBy(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  return info.tcpi_bytes_acked + info.tcpi_bytes_received;
}

}  // namespace

bool MovingBytes::HaveMoved() {
  bool moved = false;
  for (const int epoll : epolls_) {
    for (const int fd : WatchedBy(epoll)) {
      const uint64_t now = CarriedBy(fd);
      uint64_t& before = carried_[fd];
      moved = moved || now > before + kAFew;
      before = now;
    }
  }
  return moved;
}

}  // namespace tandem
