#include "core/shm/memory/peer_descriptors.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace tandem {
namespace {

// The entries that somebody holds.
template <typename Key>
class Table {
 public:
  SharedFd Find(const Key& key) const {
    const auto found = held_.find(key);
    return found == held_.end() ? nullptr : found->second.lock();
  }

  SharedFd Add(const Key& key, OwnedFd fd) {
    for (auto it = held_.begin(); it != held_.end();) {
      it = it->second.expired() ? held_.erase(it) : std::next(it);
    }
    auto shared = std::make_shared<const OwnedFd>(std::move(fd));
    held_[key] = shared;
    return shared;
  }

 private:
  std::map<Key, std::weak_ptr<const OwnedFd>> held_;
};

absl::Mutex& TableMutex() {
  static auto* const mutex = new absl::Mutex;
  return *mutex;
}

bool HasEnded(int pidfd) {
  pollfd one{pidfd, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace

SharedFd ShareFile(OwnedFd fd) {
  static auto* const files = new Table<std::pair<dev_t, ino_t>>;
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) {
    return std::make_shared<const OwnedFd>(std::move(fd));
  }
  const std::pair<dev_t, ino_t> key(status.st_dev, status.st_ino);
  absl::MutexLock lock(&TableMutex());
  SharedFd shared = files->Find(key);
  return shared != nullptr ? shared : files->Add(key, std::move(fd));
}

SharedFd ShareProcess(pid_t pid) {
  static auto* const processes = new Table<pid_t>;
  if (pid <= 0 || pid == getpid()) return nullptr;
  absl::MutexLock lock(&TableMutex());
  SharedFd shared = processes->Find(pid);
  // The number may be another process's by now.
  if (shared != nullptr && !HasEnded(shared->get())) return shared;
  constexpr int kPidfdOpen = 434;
  OwnedFd fd(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
  return fd ? processes->Add(pid, std::move(fd)) : nullptr;
}

}  // namespace tandem
