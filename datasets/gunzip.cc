#include "datasets/gunzip.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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
  UnpackedFile opened(path, std::move(file));
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
    if (got < room) return ReadError();
    count -= room;
  }
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
