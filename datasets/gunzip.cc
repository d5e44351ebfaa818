#include "datasets/gunzip.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;
constexpr unsigned kBuffer = 1 << 17;

// What was given wrongly, or what may pass: a network file system's trouble.
absl::StatusCode CodeOf(int error) {
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
  return absl::Status(CodeOf(error),
                      absl::StrCat(path, ": ", std::strerror(error)));
}

// The length of what is open, if that is a regular file.
absl::StatusOr<int64_t> LengthOf(const std::string& path, int descriptor) {
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

}  // namespace

void UnpackedFile::Close::operator()(gzFile_s* file) const { gzclose(file); }

absl::StatusOr<UnpackedFile> UnpackedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Failed(path);
  const absl::StatusOr<int64_t> length = LengthOf(path, descriptor);
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

}  // namespace tandem
