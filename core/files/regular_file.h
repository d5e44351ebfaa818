// Regular files for reading: pieces from anywhere in them, or a short one
// whole.

#ifndef TANDEM_CORE_FILES_REGULAR_FILE_H_
#define TANDEM_CORE_FILES_REGULAR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/owned_fd.h"

namespace tandem {

// An open file. Errors name the path. Thread-safe.
class RegularFile {
 public:
  // NotFound, PermissionDenied and others of the file system; InvalidArgument
  // for what is no regular file: a folder, a device, a pipe (for whose writer
  // nobody waits).
  static absl::StatusOr<RegularFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // Bytes that it had when it was opened.
  uint64_t size() const { return size_; }

  // Bytes `offset` to offset + size - 1 to `to`. InvalidArgument where there
  // are not so many: it became shorter.
  absl::Status ReadAt(uint64_t offset, void* to, uint64_t size) const;

 private:
  RegularFile() = default;

  std::string path_;
  OwnedFd descriptor_;
  uint64_t size_ = 0;
};

// All of a file. InvalidArgument, before memory is taken, for one of more than
// `most` bytes.
absl::StatusOr<std::string> ReadShortFile(const std::string& path,
                                          uint64_t most);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_REGULAR_FILE_H_
