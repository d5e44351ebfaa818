#include "datasets/tokenizers/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/owned_fd.h"

namespace tandem {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;

absl::Status CannotRead(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // Opening a pipe would wait for somebody to write.
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0) return CannotRead(path);
  if (!S_ISREG(status.st_mode) || status.st_size > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is no regular file of at most ", kMostBytes, " bytes"));
  }
  std::string contents(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got =
        read(file.get(), &contents[done], contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotRead(path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  contents.resize(done);
  return contents;
}

bool IsRegularFile(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace tandem
