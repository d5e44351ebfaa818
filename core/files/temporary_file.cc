#include "core/files/temporary_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files/file_target.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

absl::StatusCode ErrnoCode(int error) {
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

}  // namespace

absl::Status WriteError(const std::string& path, absl::string_view action) {
  const int error = errno;
  return absl::Status(ErrnoCode(error),
                      absl::StrCat("cannot write ", path, ": ", action, ": ",
                                   std::strerror(error)));
}

bool CannotSync(int error) {
  return error == EINVAL || error == ENOTSUP || error == ENOSYS;
}

absl::Status SyncFolder(const std::string& folder, const std::string& path) {
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return WriteError(path, "opening its directory");
  absl::Status status;
  if (fsync(descriptor) != 0 && !CannotSync(errno)) {
    status = WriteError(path, "syncing its directory");
  }
  close(descriptor);
  return status;
}

void SyncNewName(const std::string& path) {
  absl::Status synced = FaultPoint("sync_new_name");
  if (synced.ok()) synced = SyncFolder(ParentDirectory(path), path);
  LOG_IF(WARNING, !synced.ok())
      << path << " is complete, but may not outlive a crash of the machine: "
      << synced.message();
}

namespace {

constexpr char kMark[] = ".tmp.";
constexpr char kRandom[] = "XXXXXX";
constexpr size_t kEndLength = sizeof(kMark) - 1 + sizeof(kRandom) - 1;

// mkstemp and mkdtemp make what the owner alone can read; this is what
// open(..., 0666) takes away. It can be read only by setting it, which other
// threads would see; /proc tells it without that.
mode_t Umask() {
  unsigned mask = 022;
  if (FILE* status = std::fopen("/proc/self/status", "re")) {
    char line[256];
    while (std::fgets(line, sizeof(line), status) != nullptr) {
      if (std::sscanf(line, "Umask: %o", &mask) == 1) break;
    }
    std::fclose(status);
  }
  return mask;
}

// Whether the file of this descriptor still has a name: between its making and
// its locking somebody may have taken it for abandoned.
bool IsLinked(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

// "model.bin" of "model.bin.tmp.a1B2c3"; empty for any other name.
absl::string_view DestinationName(absl::string_view name) {
  if (name.size() <= kEndLength) return {};
  const absl::string_view end = name.substr(name.size() - kEndLength);
  const absl::string_view random = end.substr(sizeof(kMark) - 1);
  const bool ours =
      end.substr(0, sizeof(kMark) - 1) == kMark &&
      std::all_of(random.begin(), random.end(),
                  [](unsigned char c) { return std::isalnum(c) != 0; });
  return ours ? name.substr(0, name.size() - kEndLength) : absl::string_view();
}

bool RemoveIfAbandoned(const std::string& path) {
  const int descriptor =
      open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  struct stat status;
  const bool removed =
      fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
      flock(descriptor, LOCK_EX | LOCK_NB) == 0 && unlink(path.c_str()) == 0;
  close(descriptor);
  return removed;
}

}  // namespace

TemporaryFile MakeTemporaryFile(const std::string& destination) {
  for (;;) {
    TemporaryFile file;
    file.path = absl::StrCat(destination, kMark, kRandom);
    file.descriptor = mkostemp(file.path.data(), O_CLOEXEC);
    if (file.descriptor < 0) return file;
    // Some file systems have no locks: nobody can clean up there either.
    flock(file.descriptor, LOCK_EX);
    if (IsLinked(file.descriptor)) {
      fchmod(file.descriptor, 0666 & ~Umask());
      return file;
    }
    close(file.descriptor);
  }
}

absl::StatusOr<std::string> MakeTemporaryFolder(
    const std::string& destination) {
  std::string path = absl::StrCat(destination, kMark, kRandom);
  if (mkdtemp(path.data()) == nullptr) {
    return WriteError(destination, absl::StrCat("making ", path, " beside it"));
  }
  chmod(path.c_str(), 0777 & ~Umask());
  return path;
}

std::vector<std::string> TemporariesIn(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    const absl::string_view destination = DestinationName(name);
    if (!destination.empty() && is_mine(destination)) found.push_back(name);
  }
  return found;
}

int RemoveAbandonedFiles(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine) {
  const std::vector<std::string> found = TemporariesIn(folder, is_mine);
  return static_cast<int>(
      std::count_if(found.begin(), found.end(), [&](const std::string& name) {
        return RemoveIfAbandoned(absl::StrCat(folder, "/", name));
      }));
}

}  // namespace tandem
