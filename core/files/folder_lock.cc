#include "core/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {

absl::StatusOr<OwnedFd> LockFolder(const std::string& folder,
                                   std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  OwnedFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return OwnedFd();
    if (std::chrono::steady_clock::now() >= end) {
      return absl::AlreadyExistsError(
          absl::StrCat(folder, " is in use by another process"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fd;
}

}  // namespace tandem
