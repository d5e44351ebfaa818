#include "core/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path) {
  // Opening a pipe would wait for somebody to write.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  RegularFile file;
  file.path_ = path;
  file.descriptor_ = OwnedFd(descriptor);
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file"));
  }
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

absl::Status RegularFile::ReadAt(uint64_t offset, void* to,
                                 uint64_t size) const {
  char* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got =
        pread(descriptor_.get(), bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    }
    if (got == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": it became shorter while it was read"));
    }
    bytes += got, offset += got, size -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadShortFile(const std::string& path,
                                          uint64_t most) {
  TANDEM_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  if (file.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file.size(), " bytes, more than the ", most,
                     " that such a file can have"));
  }
  std::string text(file.size(), '\0');
  TANDEM_RETURN_IF_ERROR(file.ReadAt(0, text.data(), text.size()));
  return text;
}

}  // namespace tandem
