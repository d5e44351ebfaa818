#include "datasets/idx.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;
constexpr unsigned kBuffer = 1 << 17;

// What was given wrongly, or what may pass: a network file system's trouble.
absl::StatusCode CodeForError(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EPERM:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status Failed(const std::string& path) {
  const int error = errno;
  return absl::Status(CodeForError(error),
                      absl::StrCat(path, ": ", std::strerror(error)));
}

// The length of what is open, if that is a regular file.
absl::StatusOr<int64_t> FileLength(const std::string& path, int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return Failed(path);
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return Failed(path);
  }
  if (S_ISREG(status.st_mode)) return status.st_size;
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": not a regular file"));
}

// The length that a gzip member's last four bytes say, modulo 2^32, if the file
// of that many bytes ends with one.
uint32_t LastLength(int descriptor, int64_t bytes) {
  unsigned char last[4] = {};
  if (pread(descriptor, last, sizeof(last), bytes - 4) !=
      static_cast<ssize_t>(sizeof(last))) {
    return 0;
  }
  uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | last[i];
  return length;
}

// Where the last whole gzip member of a file ends.
int64_t EndOfMembers(int descriptor) {
  z_stream stream = {};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return 0;
  std::vector<unsigned char> packed(kBuffer), unpacked(kBuffer);
  int64_t read = 0;
  int64_t end = 0;
  for (int result = Z_OK; result == Z_OK;) {
    if (stream.avail_in == 0) {
      const ssize_t got = pread(descriptor, packed.data(), packed.size(), read);
      if (got <= 0) break;
      read += got;
      stream.next_in = packed.data();
      stream.avail_in = static_cast<unsigned>(got);
    }
    stream.next_out = unpacked.data();
    stream.avail_out = kBuffer;
    result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_STREAM_END) continue;
    end = read - stream.avail_in;
    result = inflateReset(&stream);
  }
  inflateEnd(&stream);
  return end;
}

constexpr int64_t kMaxBytes = int64_t{2} << 30;
constexpr int kUnsignedByte = 0x08;
constexpr int64_t kMagicBytes = 4;  // 0, 0, dtype, number of dimensions
constexpr int64_t kSizeBytes = 4;   // a big-endian number

uint8_t ByteAt(const std::string& file, int64_t offset) {
  return static_cast<uint8_t>(file[offset]);
}

int64_t SizeAt(const std::string& file, int64_t offset) {
  int64_t size = 0;
  for (int i = 0; i < kSizeBytes; ++i) {
    size = size << 8 | ByteAt(file, offset + i);
  }
  return size;
}

absl::Status CheckMagic(const std::string& path, const std::string& file,
                        int dimensions) {
  const std::string first_bytes = file.substr(0, kMagicBytes);
  if (first_bytes.size() < kMagicBytes || file[0] != 0 || file[1] != 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": not an IDX file: it begins with bytes '",
                     absl::BytesToHexString(first_bytes), "', expected '00000",
                     kUnsignedByte, "0", dimensions, "'"));
  }
  if (ByteAt(file, 2) != kUnsignedByte) {
    return absl::DataLossError(absl::StrCat(path, ": IDX dtype 0x",
                                            absl::Hex(ByteAt(file, 2)),
                                            ", expected 0x8 (unsigned bytes)"));
  }
  if (ByteAt(file, 3) != dimensions) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", ByteAt(file, 3), " dimensions, expected ",
                     dimensions, ": are images and labels confused?"));
  }
  return absl::OkStatus();
}

// The sizes multiplied, or a number above any file's length.
int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (size == 0) return 0;
    product = product > kMaxBytes ? product : product * size;
  }
  return product;
}

// `found`: bytes behind the header, of which there may be more (`at_least`).
absl::Status CheckLength(const std::string& path, const IdxArray& array,
                         int64_t expected, int64_t found, bool at_least) {
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, ": ", found < expected ? "truncated" : "too long",
                   ": ", found, at_least ? " bytes or more" : " bytes",
                   " behind the header, but its sizes [",
                   absl::StrJoin(array.sizes, ", "), "] need ",
                   expected > kMaxBytes ? absl::StrCat("more than ", kMaxBytes)
                                        : absl::StrCat(expected),
                   "; fetch it again"));
}

}  // namespace

void UnpackedFile::Close::operator()(gzFile_s* file) const { gzclose(file); }

absl::StatusOr<UnpackedFile> UnpackedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Failed(path);
  const absl::StatusOr<int64_t> length = FileLength(path, descriptor);
  File file(length.ok() ? gzdopen(descriptor, "rb") : nullptr);
  if (file == nullptr) close(descriptor);
  TANDEM_RETURN_IF_ERROR(length.status());
  if (file == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": no memory to read it"));
  }
  gzbuffer(file.get(), kBuffer);
  UnpackedFile opened(path, descriptor, *length, std::move(file));
  if (gzdirect(opened.file_.get()) == 1) opened.length_ = *length;
  TANDEM_RETURN_IF_ERROR(opened.ReadError());  // of the first bytes
  return opened;
}

absl::Status UnpackedFile::Read(int64_t count, std::string* content) {
  while (count > 0) {
    const int64_t room = std::min(count, kChunk);
    const size_t begin = content->size();
    content->resize(begin + static_cast<size_t>(room));
    const int got =
        gzread(file_.get(), &(*content)[begin], static_cast<unsigned>(room));
    content->resize(begin + static_cast<size_t>(std::max(got, 0)));
    if (got < room) return NoteEnd();
    count -= room;
  }
  return absl::OkStatus();
}

// The end of packed data is looked at once. Its last bytes say how long it is,
// unless it has several members or something lies behind them.
absl::Status UnpackedFile::NoteEnd() {
  TANDEM_RETURN_IF_ERROR(ReadError());
  if (length_.has_value() || is_at_end_) return absl::OkStatus();
  is_at_end_ = true;
  const auto unpacked = static_cast<uint32_t>(gztell(file_.get()));
  if (LastLength(descriptor_, bytes_) == unpacked) return absl::OkStatus();
  const int64_t behind = bytes_ - EndOfMembers(descriptor_);
  LOG_IF(WARNING, behind > 0)
      << path_ << ": " << behind << (behind == 1 ? " byte" : " bytes")
      << " behind the gzip data, which nobody reads";
  return absl::OkStatus();
}

// Why less came than was asked for: OK at the end.
absl::Status UnpackedFile::ReadError() const {
  int error = Z_OK;
  gzerror(file_.get(), &error);
  switch (error) {
    case Z_OK:
    case Z_STREAM_END:
      return absl::OkStatus();
    case Z_ERRNO:
      return Failed(path_);
    case Z_MEM_ERROR:
      return absl::ResourceExhaustedError(
          absl::StrCat(path_, ": no memory to unpack it"));
    case Z_BUF_ERROR:
      return absl::DataLossError(
          absl::StrCat(path_, ": truncated: the gzip data ends early, after ",
                       gzoffset(file_.get()), " bytes; fetch it again"));
    default:
      return absl::DataLossError(
          absl::StrCat(path_, ": damaged: not valid gzip data after ",
                       gztell(file_.get()), " unpacked bytes; fetch it again"));
  }
}

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions) {
  TANDEM_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  IdxArray array;
  array.begin = kMagicBytes + dimensions * kSizeBytes;
  TANDEM_RETURN_IF_ERROR(file.Read(array.begin, &array.file));
  TANDEM_RETURN_IF_ERROR(CheckMagic(path, array.file, dimensions));
  const auto length = static_cast<int64_t>(array.file.size());
  if (length < array.begin) {
    return absl::DataLossError(absl::StrCat(path, ": truncated: ", length,
                                            " bytes, expected a header of ",
                                            array.begin, "; fetch it again"));
  }
  for (int i = 0; i < dimensions; ++i) {
    array.sizes.push_back(SizeAt(array.file, kMagicBytes + i * kSizeBytes));
  }
  const int64_t expected = Product(array.sizes);
  if (file.length().has_value()) {
    TANDEM_RETURN_IF_ERROR(CheckLength(path, array, expected,
                                       *file.length() - array.begin,
                                       /*at_least=*/false));
  }
  if (expected > kMaxBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": sizes [", absl::StrJoin(array.sizes, ", "),
        "] need more than ", kMaxBytes, " bytes; not a file of this kind"));
  }
  // One byte more shows a file that is too long, however long it is.
  const int64_t most = expected + 1;
  TANDEM_RETURN_IF_ERROR(file.Read(most, &array.file));
  const int64_t found = static_cast<int64_t>(array.file.size()) - array.begin;
  TANDEM_RETURN_IF_ERROR(
      CheckLength(path, array, expected, found, /*at_least=*/found == most));
  return array;
}

}  // namespace tandem
