// Files that may be gzipped, read piece by piece.

#ifndef TANDEM_DATASETS_GUNZIP_H_
#define TANDEM_DATASETS_GUNZIP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// The content of a file, unpacked if it begins as gzip files do (RFC 1952; it
// may have several members). Memory goes by what is asked for, not by the file:
// a small one can unpack to a thousand times its size.
//
// Errors name the file: missing (NotFound), not a regular file
// (FailedPrecondition: nobody waits for a pipe), truncated, damaged or with
// bytes behind the packed data (DataLoss). Not thread-safe.
class UnpackedFile {
 public:
  static absl::StatusOr<UnpackedFile> Open(const std::string& path);

  ~UnpackedFile();
  UnpackedFile(UnpackedFile&&);
  UnpackedFile& operator=(UnpackedFile&&) = delete;

  // Appends up to `count` bytes to `content`: fewer only at the end.
  absl::Status Read(int64_t count, std::string* content);

  // The length of the content where it is known before all is read: that of a
  // file that is not packed.
  std::optional<int64_t> length() const;

 private:
  class Source;
  explicit UnpackedFile(std::unique_ptr<Source> source);

  std::unique_ptr<Source> source_;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_GUNZIP_H_
