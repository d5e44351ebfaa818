// Files that are there whole or not at all.

#ifndef TANDEM_CORE_FILES_ATOMIC_FILE_H_
#define TANDEM_CORE_FILES_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Writes a new file beside its destination, and puts it there when it is
// complete: synced, renamed, the directory synced. Until then, and after any
// failure, the destination is as it was. Destroyed without Commit, it removes
// what it wrote. Only a process killed in the middle leaves its file behind,
// named PATH.tmp.XXXXXX, which the next one for PATH removes
// (core/files/temporary_file.h).
//
//   TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create("run/model.bin"));
//   TANDEM_RETURN_IF_ERROR(file->Append(header));
//   TANDEM_RETURN_IF_ERROR(file->Append(data, size));
//   TANDEM_RETURN_IF_ERROR(file->Commit());
//
// The directory must exist. Where the path is a symbolic link, what it leads to
// is replaced, and the link stays. InvalidArgument for what is no regular file:
// a folder, a device, a pipe. Errors name the path, what was tried and the
// system's reason: NotFound, PermissionDenied, ResourceExhausted (disk full,
// quota; file too large, in a process that ignores SIGXFSZ), else Unavailable.
// After an error the only use left is to destroy the object. Not thread-safe.
class AtomicFile {
 public:
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      const std::string& path);

  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(const void* data, size_t size);
  absl::Status Append(absl::string_view data) {
    return Append(data.data(), data.size());
  }

  // Puts other bytes where some were appended before.
  absl::Status Overwrite(uint64_t offset, absl::string_view data);

  // To be called once, last. An error means that the destination is as it was.
  absl::Status Commit();

  const std::string& path() const { return path_; }
  // Bytes so far.
  uint64_t size() const { return written_ + waiting_.size(); }

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  absl::Status Flush();
  absl::Status Sync();
  void Discard();

  std::string path_;
  std::string temporary_;  // empty once there is nothing to remove
  int descriptor_;         // -1 once closed
  std::string waiting_;    // small pieces, not written yet
  uint64_t written_ = 0;
};

// All of `contents` as the file at `path`.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view contents);

// The same for a path that a user named: what cannot be replaced, but written
// to (/dev/stdout, /dev/null, a pipe that somebody reads), is written to as it
// is.
absl::Status WriteOutputFile(const std::string& path,
                             absl::string_view contents);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_ATOMIC_FILE_H_
