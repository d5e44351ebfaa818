#include "core/store/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/owned_fd.h"
#include "core/base/private_file.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"

namespace tandem {
namespace {

absl::Status CheckDirectoryOf(const std::string& path,
                              const std::string& name) {
  std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " names no file"));
  }
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::NotFoundError(
        absl::StrCat(name, ": there is no directory ", directory.string()));
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(name, ": may not write in ", directory.string()));
  }
  struct stat found {};
  if (stat(directory.c_str(), &found) != 0) {
    return SystemError(errno, absl::StrCat(name, ": ", directory.string()));
  }
  // With the sticky bit, as in /tmp, nobody replaces another's file. A group
  // may write: that of many users has no other member.
  if ((found.st_mode & S_IWOTH) == 0 || (found.st_mode & S_ISVTX) != 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      name, ": everybody may write in ", directory.string(),
      ", and put a file of theirs there: chmod o-w it, or name another"));
}

}  // namespace

absl::Status MakeStoreFile(const std::string& path) {
  const std::string name = absl::StrCat("file://", path);
  TANDEM_RETURN_IF_ERROR(CheckDirectoryOf(path, name));
  const OwnedFd fd(open(path.c_str(),
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                        S_IRUSR | S_IWUSR));
  struct stat file {};
  if (!fd || fstat(fd.get(), &file) != 0) {
    const absl::Status error = SystemError(errno, name);
    // Another user's, or a link.
    if (!absl::IsPermissionDenied(error) && !absl::IsUnknown(error)) {
      return error;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(error.message(), " (give a file of yours)"));
  }
  if (!S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no regular file"));
  }
  return CheckPrivate(
      file, name,
      "remove it, or name another, on a file system that keeps modes");
}

}  // namespace tandem
