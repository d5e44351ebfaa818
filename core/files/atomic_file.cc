#include "core/files/atomic_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/file_target.h"
#include "core/files/temporary_file.h"

namespace tandem {
namespace {

constexpr size_t kMostWaiting = size_t{1} << 20;

// All of `size` bytes, or what is wrong in errno. `written` counts on.
bool WriteAll(int descriptor, const char* bytes, size_t size,
              uint64_t* written) {
  while (size > 0) {
    const ssize_t count = write(descriptor, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes += count;
    size -= count;
    *written += count;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const FileTarget target, ResolveFileTarget(path));
  if (target.in_place) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write '", path,
                     "': a device, a pipe or an open file, which no file can "
                     "replace; give the name of a file"));
  }
  const std::string name = target.path.substr(target.path.rfind('/') + 1);
  RemoveAbandonedFiles(ParentDirectory(target.path),
                       [&](absl::string_view other) { return other == name; });
  TemporaryFile temporary = MakeTemporaryFile(target.path);
  if (temporary.descriptor < 0)
    return WriteError(path, "creating a file beside it");
  return std::unique_ptr<AtomicFile>(new AtomicFile(
      target.path, std::move(temporary.path), temporary.descriptor));
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

AtomicFile::~AtomicFile() { Discard(); }

// Removed before the lock goes: afterwards the name may be another's.
void AtomicFile::Discard() {
  if (!temporary_.empty()) unlink(std::exchange(temporary_, "").c_str());
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

absl::Status AtomicFile::Append(const void* data, size_t size) {
  CHECK_GE(descriptor_, 0) << "Append to " << path_ << " after Commit";
  if (waiting_.size() + size <= kMostWaiting) {
    waiting_.append(static_cast<const char*>(data), size);
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(Flush());
  if (WriteAll(descriptor_, static_cast<const char*>(data), size, &written_)) {
    return absl::OkStatus();
  }
  return WriteError(path_, absl::StrCat("after ", written_, " bytes"));
}

absl::Status AtomicFile::Flush() {
  const bool all =
      WriteAll(descriptor_, waiting_.data(), waiting_.size(), &written_);
  if (!all)
    return WriteError(path_, absl::StrCat("after ", written_, " bytes"));
  waiting_.clear();
  return absl::OkStatus();
}

absl::Status AtomicFile::Overwrite(uint64_t offset, absl::string_view data) {
  CHECK_LE(offset + data.size(), size()) << path_;
  TANDEM_RETURN_IF_ERROR(Flush());
  while (!data.empty()) {
    const ssize_t count = pwrite(descriptor_, data.data(), data.size(),
                                 static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return WriteError(path_, absl::StrCat("at byte ", offset));
    data.remove_prefix(count);
    offset += count;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Sync() {
  TANDEM_RETURN_IF_ERROR(Flush());
  if (fsync(descriptor_) != 0 && !CannotSync(errno)) {
    return WriteError(path_, "syncing it");
  }
  // Network file systems report a full disk as late as when a descriptor is
  // closed. The first one keeps the lock until the file has its name.
  const int second = fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (second < 0 || close(second) != 0) return WriteError(path_, "closing it");
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  CHECK_GE(descriptor_, 0) << "second Commit of " << path_;
  TANDEM_RETURN_IF_ERROR(Sync());
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return WriteError(path_, "renaming the complete file to it");
  }
  temporary_.clear();
  Discard();
  SyncNewName(path_);
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view contents) {
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  TANDEM_RETURN_IF_ERROR(file->Append(contents));
  return file->Commit();
}

absl::Status WriteOutputFile(const std::string& path,
                             absl::string_view contents) {
  TANDEM_ASSIGN_OR_RETURN(const FileTarget target, ResolveFileTarget(path));
  if (!target.in_place) return WriteFileAtomically(path, contents);
  TANDEM_ASSIGN_OR_RETURN(const int descriptor, OpenInPlace(target));
  const absl::Cleanup close_it = [descriptor] { close(descriptor); };
  uint64_t written = 0;
  if (WriteAll(descriptor, contents.data(), contents.size(), &written)) {
    return absl::OkStatus();
  }
  return WriteError(path, absl::StrCat("after ", written, " bytes"));
}

}  // namespace tandem
