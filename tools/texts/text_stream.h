// Text stream: the bytes of a text file, unpacked as they are read.

#ifndef TANDEM_TOOLS_TEXTS_TEXT_STREAM_H_
#define TANDEM_TOOLS_TEXTS_TEXT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// How a file is compressed, by the end of its name.
enum class Packing { kNone, kGzip, kZstd };

// kGzip of "pages.jsonl.gz", kZstd of "pages.jsonl.zst", in letters of any
// size.
Packing PackingByName(const std::string& path);

// A file from its beginning to its end. What is in memory is a part of it, and
// what unpacking needs: 32 KiB for gzip, at most 128 MiB for zstd, whatever the
// file says.
class TextStream {
 public:
  // The file system's errors, and InvalidArgument for what is no regular file.
  static absl::StatusOr<std::unique_ptr<TextStream>> Open(
      const std::string& path, Packing packing);

  virtual ~TextStream() = default;

  // Writes the next bytes to `to`: `size` of them, or, at the end, all that are
  // left. DataLoss, with the path, for packed data that is damaged or ends
  // early, and for bytes behind it (but zeros behind gzip's, as on tapes);
  // InvalidArgument for zstd data that needs more memory; else the file
  // system's errors.
  virtual absl::StatusOr<size_t> Read(char* to, size_t size) = 0;

  // How much of the file was read, packed as it is.
  virtual int64_t bytes_read() const = 0;
};

// How many bytes there are, unpacked. Reads all of it; the errors of Read.
absl::StatusOr<int64_t> UnpackedBytes(const std::string& path, Packing packing);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_TEXT_STREAM_H_
