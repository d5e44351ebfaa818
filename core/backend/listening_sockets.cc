#include "core/backend/listening_sockets.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

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

}  // namespace

std::set<int> ListeningDescriptors() {
  std::set<int> listening;
  std::error_code error;
  std::filesystem::directory_iterator each("/proc/self/fd", error);
  for (; !error && each != std::filesystem::directory_iterator();
       each.increment(error)) {
    int fd = -1;
    if (absl::SimpleAtoi(each->path().filename().string(), &fd) &&
        ListensOnTcp(fd)) {
      listening.insert(fd);
    }
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

absl::Status ShutToNewConnections(int fd) {
  sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program = {1, drop};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) !=
      0) {
    return absl::ErrnoToStatus(errno, "shut a listening socket");
  }
  return absl::OkStatus();
}

}  // namespace tandem
