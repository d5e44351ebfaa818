#include "core/atomic_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// What went wrong, from errno.
absl::Status Failed(const std::string& path, absl::string_view action) {
  const int error = errno;
  return absl::Status(CodeOf(error),
                      absl::StrCat("cannot write ", path, ": ", action, ": ",
                                   std::strerror(error)));
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// mkstemp makes files for the owner alone; give what open(..., 0666) gives.
// The umask can be read only by setting it, which other threads would see;
// /proc tells it without that.
mode_t UsualMode() {
  unsigned mask = 022;
  if (FILE* status = std::fopen("/proc/self/status", "re")) {
    char line[256];
    while (std::fgets(line, sizeof(line), status) != nullptr) {
      if (std::sscanf(line, "Umask: %o", &mask) == 1) break;
    }
    std::fclose(status);
  }
  return 0666 & ~mask;
}

// Makes the rename last: it is the directory that changed.
absl::Status SyncDirectory(const std::string& path) {
  const std::string directory = DirectoryOf(path);
  const int descriptor =
      open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Failed(path, "opening its directory");
  absl::Status status;
  // Some file systems cannot sync a directory and say so with EINVAL.
  if (fsync(descriptor) != 0 && errno != EINVAL) {
    status = Failed(path, "syncing its directory");
  }
  close(descriptor);
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    const std::string& path) {
  struct stat existing;
  if (path.empty() || path.back() == '/' ||
      (stat(path.c_str(), &existing) == 0 && S_ISDIR(existing.st_mode))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot write '", path, "': a directory; give the name of a file"));
  }
  std::string temporary = path + ".tmp.XXXXXX";
  const int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return Failed(path, "creating a file beside it");
  auto file = std::unique_ptr<AtomicFile>(
      new AtomicFile(path, std::move(temporary), descriptor));
  if (fchmod(descriptor, UsualMode()) != 0) return Failed(path, "chmod");
  return file;
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) unlink(std::exchange(temporary_, "").c_str());
}

absl::Status AtomicFile::Append(const void* data, size_t size) {
  CHECK_GE(descriptor_, 0) << "Append to " << path_ << " after Commit";
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(descriptor_, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return Failed(path_, absl::StrCat("after ", size_, " bytes"));
    }
    bytes += written;
    size -= written;
    size_ += written;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Close() {
  if (fsync(descriptor_) != 0) return Failed(path_, "syncing it");
  // Network file systems report a full disk as late as here.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    return Failed(path_, "closing it");
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  CHECK_GE(descriptor_, 0) << "second Commit of " << path_;
  TANDEM_RETURN_IF_ERROR(Close());
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Failed(path_, "renaming the complete file to it");
  }
  temporary_.clear();
  return SyncDirectory(path_);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view contents) {
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  TANDEM_RETURN_IF_ERROR(file->Append(contents));
  return file->Commit();
}

}  // namespace tandem
