// Zip directory: which records a zip archive has, and where in the file.

#ifndef TANDEM_CORE_PYTORCH_FILE_ZIP_DIRECTORY_H_
#define TANDEM_CORE_PYTORCH_FILE_ZIP_DIRECTORY_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/files/regular_file.h"

namespace tandem {

// The longest central directory that is read, in bytes.
constexpr uint64_t kMaxZipDirectoryBytes = 64 << 20;

// Bytes [offset, offset + size) of the file. They lie within it.
struct ZipRecord {
  uint64_t offset = 0;
  uint64_t size = 0;
  bool is_stored = true;  // else compressed or encrypted: bytes mean nothing
  uint32_t crc32 = 0;     // of what was stored (core/digest/crc32.h)
};

using ZipDirectory = std::map<std::string, ZipRecord>;  // by name

// Reads the directory of an archive as torch.save writes it: zip64 or not,
// without a comment at the end. Format: PKWARE's APPNOTE, 4.3. Trusts nothing:
// InvalidArgument, naming the path, for what is no such archive (truncated,
// say), for a record that is not within the file, and for a name that comes
// twice. Nothing is decompressed.
absl::StatusOr<ZipDirectory> ReadZipDirectory(const RegularFile& file);

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_ZIP_DIRECTORY_H_
