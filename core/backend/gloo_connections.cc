#include "core/backend/gloo_connections.h"

#include <ATen/ops/empty.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/digest/hmac_sha256.h"

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

// What a descriptor stands for: "socket:[4711]", which no other socket has. A
// number, though, is used anew once its descriptor is closed.
std::string DescriptorName(int fd) {
  std::error_code gone;
  return std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd), gone)
      .string();
}

std::set<std::string> ListeningNames() {
  std::set<std::string> names;
  for (const int fd : ListeningDescriptors()) names.insert(DescriptorName(fd));
  return names;
}

// Names of the sockets that each epoll instance watches. The instances all have
// the same name.
std::map<int, std::set<std::string>> Epolls() {
  std::map<int, std::set<std::string>> epolls;
  for (const int epoll : OpenDescriptors()) {
    if (DescriptorName(epoll) != "anon_inode:[eventpoll]") continue;
    std::set<std::string>& watched = epolls[epoll];
    for (const int fd : WatchedBy(epoll)) {
      const std::string name = DescriptorName(fd);
      if (absl::StartsWith(name, "socket:")) watched.insert(name);
    }
  }
  return epolls;
}

// Whether the instance that watched `before` is no longer there, and another of
// its number watches `now`.
bool HasGone(const std::set<std::string>& before,
             const std::set<std::string>& now) {
  return !before.empty() && std::none_of(before.begin(), before.end(),
                                         [&](const std::string& name) {
                                           return now.count(name) > 0;
                                         });
}

}  // namespace

std::set<int> ListeningDescriptors() {
  std::set<int> listening;
  for (const int fd : OpenDescriptors()) {
    if (ListensOnTcp(fd)) listening.insert(fd);
  }
  return listening;
}

Acceptors NewAcceptors(const std::function<void()>& make) {
  static absl::Mutex* const mutex = new absl::Mutex;
  absl::MutexLock lock(mutex);
  const std::set<std::string> listening_before = ListeningNames();
  const std::map<int, std::set<std::string>> epolls_before = Epolls();
  make();
  Acceptors made;
  for (const auto& [epoll, watched] : Epolls()) {
    const auto before = epolls_before.find(epoll);
    if (before != epolls_before.end() && !HasGone(before->second, watched)) {
      continue;
    }
    for (const int fd : WatchedBy(epoll)) {
      if (!ListensOnTcp(fd) || listening_before.count(DescriptorName(fd)) > 0)
        continue;
      made.sockets.insert(fd);
      made.epolls.insert(epoll);
    }
  }
  return made;
}

// Reads the lines "tfd:        5 events:       19 data: ...", one for each.
std::set<int> WatchedBy(int epoll) {
  std::set<int> watched;
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", epoll));
  int fd = -1;
  for (std::string word; info >> word;) {
    if (word == "tfd:" && info >> fd) watched.insert(fd);
  }
  return watched;
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

namespace {

constexpr char kKey[] = "pair_proof";

// Rank 0's, which makes it.
absl::StatusOr<std::string> PairKey(int rank, c10d::Store& store) {
  if (rank != 0) return store.get_to_str(kKey);
  TANDEM_ASSIGN_OR_RETURN(const std::string key, RandomBytes(32));
  store.set(kKey, key);
  return key;
}

std::string Code(const HmacSha256& hmac, int from, int to) {
  return hmac.Of({absl::StrCat(from, " to ", to)});
}

char* CodeAt(const at::Tensor& codes, int rank) {
  return static_cast<char*>(codes.data_ptr()) +
         static_cast<size_t>(rank) * kCodeBytes;
}

}  // namespace

absl::Status ProvePairs(c10d::Backend& group, c10d::Store& store) {
  const int rank = group.getRank();
  const int size = group.getSize();
  if (size == 1) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string key, PairKey(rank, store));
  const HmacSha256 hmac(key);
  const int64_t bytes = size * static_cast<int64_t>(kCodeBytes);
  at::Tensor mine = at::empty({bytes}, at::kByte);
  at::Tensor theirs = at::empty({bytes}, at::kByte);
  for (int r = 0; r < size; ++r) {
    std::memcpy(CodeAt(mine, r), Code(hmac, rank, r).data(), kCodeBytes);
  }
  std::vector<int64_t> equal;
  group.all_to_all_single(theirs, mine, equal, equal)->wait();
  for (int r = 0; r < size; ++r) {
    const absl::string_view came(CodeAt(theirs, r), kCodeBytes);
    if (SameCode(came, Code(hmac, r, rank))) continue;
    return absl::UnavailableError(absl::StrCat(
        "the connection with rank ", r,
        " of the group is somebody else's, who "
        "came to a Gloo port before that rank did (docs/launching.md)"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
