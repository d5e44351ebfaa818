// IDX: the array files of MNIST and its kin (yann.lecun.com/exdb/mnist).

#ifndef TANDEM_DATASETS_IDX_H_
#define TANDEM_DATASETS_IDX_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct gzFile_s;

namespace tandem {

// The content of a file, unpacked if it begins as gzip files do (RFC 1952; it
// may have several members). Memory goes by what is asked for, not by the file:
// a small one can unpack to a thousand times its size.
//
// Errors name the file: missing (NotFound), not a regular file or not to be
// read by this user (FailedPrecondition: nobody waits for a pipe), not read for
// now (Unavailable: EIO, ESTALE), truncated or damaged (DataLoss). Bytes behind
// the packed data are ignored with a warning, as gzip does. Not thread-safe.
class UnpackedFile {
 public:
  static absl::StatusOr<UnpackedFile> Open(const std::string& path);

  // Appends up to `count` bytes to `content`: fewer only at the end.
  absl::Status Read(int64_t count, std::string* content);

  // The length of the content where it is known before all is read: that of a
  // file that is not packed.
  std::optional<int64_t> length() const { return length_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  using File = std::unique_ptr<gzFile_s, Close>;

  UnpackedFile(std::string path, int descriptor, int64_t bytes, File file)
      : path_(std::move(path)),
        descriptor_(descriptor),
        bytes_(bytes),
        file_(std::move(file)) {}

  absl::Status NoteEnd();
  absl::Status ReadError() const;

  std::string path_;
  int descriptor_;  // file_'s
  int64_t bytes_;   // of the file as it is
  bool is_at_end_ = false;
  File file_;
  std::optional<int64_t> length_;
};

// An array of unsigned bytes, row-major.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::string file;   // the whole file, header included
  int64_t begin = 0;  // where in `file` the array begins

  const uint8_t* data() const {
    return reinterpret_cast<const uint8_t*>(file.data()) + begin;
  }
};

// Reads an IDX file of unsigned bytes with `dimensions` dimensions, gzipped or
// not. A file that is not one (wrong magic), has another dtype or another
// number of dimensions, or holds fewer or more bytes than its sizes say, is an
// error that names the file, what was found and what was expected; so is what
// is no regular file. No more is held than the sizes in the header promise, nor
// than is there; arrays beyond 2 GiB are refused.
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions);

}  // namespace tandem

#endif  // TANDEM_DATASETS_IDX_H_
