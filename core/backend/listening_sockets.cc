#include "core/backend/listening_sockets.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"

namespace tandem {
namespace {

bool ListensOnTcp(int fd) {
  int value = 0;
  socklen_t length = sizeof(value);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) != 0 ||
      value == 0) {
    return false;
  }
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 &&
         (value == AF_INET || value == AF_INET6);
}

std::vector<int> OpenDescriptors() {
  std::vector<int> open;
  std::error_code error;
  std::filesystem::directory_iterator each("/proc/self/fd", error);
  for (; !error && each != std::filesystem::directory_iterator();
       each.increment(error)) {
    int fd = -1;
    if (absl::SimpleAtoi(each->path().filename().string(), &fd)) {
      open.push_back(fd);
    }
  }
  return open;
}

}  // namespace

std::set<int> ListeningDescriptors() {
  std::set<int> listening;
  for (const int fd : OpenDescriptors()) {
    if (ListensOnTcp(fd)) listening.insert(fd);
  }
  return listening;
}

std::set<int> DescriptorsOf(const std::function<void()>& make) {
  static absl::Mutex* const mutex = new absl::Mutex;
  absl::MutexLock lock(mutex);
  const std::set<int> before = ListeningDescriptors();
  make();
  const std::set<int> after = ListeningDescriptors();
  std::set<int> made;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::inserter(made, made.end()));
  return made;
}

absl::Status StopAccepting(int fd) {
  // A healthy listening socket has no events that come unasked, so nobody looks
  // at the data of this one.
  epoll_event none{};
  bool found = false;
  for (const int epoll : OpenDescriptors()) {
    // Fails for what is no epoll instance, and for one that does not watch it.
    found = epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &none) == 0 || found;
  }
  if (found) return absl::OkStatus();
  return absl::NotFoundError("nobody accepts at this descriptor by epoll");
}

}  // namespace tandem
