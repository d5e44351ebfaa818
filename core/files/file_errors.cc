#include "core/files/file_errors.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/files/file_target.h"
#include "core/instrument/fault_point.h"

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

}  // namespace

absl::Status WriteError(const std::string& path, absl::string_view action) {
  const int error = errno;
  return absl::Status(CodeOf(error),
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
  if (synced.ok()) synced = SyncFolder(DirectoryOf(path), path);
  LOG_IF(WARNING, !synced.ok())
      << path << " is complete, but may not outlive a crash of the machine: "
      << synced.message();
}

}  // namespace tandem
