#include "core/files/atomic_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/files/file_errors.h"
#include "core/files/file_target.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kOldSuffix[] = ".old";

std::string OldFolder(const std::string& path) {
  return absl::StrCat(IncompleteFolder(path), kOldSuffix);
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  errno = error.value();
  return WriteError(path, "removing it");
}

// Locked, or none: it is not there, or another process has it.
OwnedFd Lock(const std::string& folder) {
  OwnedFd descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return OwnedFd();
  if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) return OwnedFd();
  return descriptor;
}

}  // namespace

std::string IncompleteFolder(const std::string& path) {
  return absl::StrCat(path, kIncompleteSuffix);
}

absl::StatusOr<std::unique_ptr<AtomicFolder>> AtomicFolder::Create(
    const std::string& path) {
  const std::string incomplete = IncompleteFolder(path);
  if (IsThere(incomplete)) {
    const OwnedFd left = Lock(incomplete);
    if (left.get() < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", path, ": another process writes ",
                       incomplete, "; give each job a folder of its own"));
    }
    TANDEM_RETURN_IF_ERROR(RemoveAll(incomplete));
  }
  if (mkdir(incomplete.c_str(), 0777) != 0) {
    return WriteError(path, absl::StrCat("making ", incomplete));
  }
  OwnedFd lock = Lock(incomplete);
  if (lock.get() < 0) {
    return WriteError(path, absl::StrCat("locking ", incomplete));
  }
  return std::unique_ptr<AtomicFolder>(new AtomicFolder(path, std::move(lock)));
}

AtomicFolder::AtomicFolder(std::string path, OwnedFd lock)
    : path_(std::move(path)),
      incomplete_(IncompleteFolder(path_)),
      lock_(std::move(lock)) {}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(incomplete_, ignored);
}

// The old one is then the incomplete one.
absl::Status AtomicFolder::Replace() {
  if (renameat2(AT_FDCWD, incomplete_.c_str(), AT_FDCWD, path_.c_str(),
                RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return WriteError(path_, "exchanging it for the complete one");
  }
  const std::string old = OldFolder(path_);
  TANDEM_RETURN_IF_ERROR(RemoveAll(old));
  if (rename(path_.c_str(), old.c_str()) != 0 ||
      rename(incomplete_.c_str(), path_.c_str()) != 0) {
    return WriteError(path_, "renaming the complete one to it");
  }
  return absl::OkStatus();
}

absl::Status AtomicFolder::Commit() {
  TANDEM_RETURN_IF_ERROR(SyncFolder(incomplete_, path_));
  TANDEM_RETURN_IF_ERROR(FaultPoint("folder_rename"));
  if (IsThere(path_)) {
    TANDEM_RETURN_IF_ERROR(Replace());
  } else if (rename(incomplete_.c_str(), path_.c_str()) != 0) {
    return WriteError(path_, "renaming the complete one to it");
  }
  committed_ = true;
  TANDEM_RETURN_IF_ERROR(SyncFolder(DirectoryOf(path_), path_));
  TANDEM_RETURN_IF_ERROR(FaultPoint("folder_renamed"));
  TANDEM_RETURN_IF_ERROR(RemoveAll(incomplete_));
  return RemoveAll(OldFolder(path_));
}

absl::Status RemoveFolder(const std::string& path) {
  const std::string incomplete = IncompleteFolder(path);
  TANDEM_RETURN_IF_ERROR(RemoveAll(incomplete));
  if (rename(path.c_str(), incomplete.c_str()) != 0) {
    return WriteError(path, "renaming it before it is removed");
  }
  return RemoveAll(incomplete);
}

std::vector<std::string> RemoveAbandonedFolders(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine) {
  std::error_code error;
  std::vector<std::string> abandoned;  // names
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path();
    const std::string file_name = entry.path().filename();
    absl::string_view name = file_name;
    absl::ConsumeSuffix(&name, kOldSuffix);
    if (!absl::ConsumeSuffix(&name, kIncompleteSuffix)) continue;
    if (is_mine(name) && Lock(path).get() >= 0) abandoned.push_back(file_name);
  }
  std::vector<std::string> removed;
  for (const std::string& name : abandoned) {
    const absl::Status status = RemoveAll(absl::StrCat(folder, "/", name));
    if (status.ok()) removed.push_back(name);
  }
  return removed;
}

}  // namespace tandem
