#include "datasets/gunzip.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr char kGzipMagic[] = "\x1f\x8b";
constexpr int64_t kChunk = int64_t{1} << 20;

absl::Status Failed(const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message)
                         : absl::FailedPreconditionError(message);
}

}  // namespace

// An open file, its packed bytes that wait to be unpacked, and zlib's decoder.
class UnpackedFile::Source {
 public:
  Source(const std::string& path, int descriptor)
      : path_(path), descriptor_(descriptor) {}
  ~Source() {
    close(descriptor_);
    if (packed_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  absl::Status Begin();
  absl::Status Read(int64_t count, std::string* content);
  std::optional<int64_t> length() const {
    return packed_ ? std::nullopt : std::optional<int64_t>(file_bytes_);
  }

 private:
  absl::Status Fill();
  absl::Status Take(int64_t count, std::string* content);
  absl::Status Unpack(int64_t count, std::string* content);
  absl::Status Settle(int result);
  bool exhausted() const { return at_end_ && stream_.avail_in == 0; }

  const std::string path_;
  const int descriptor_;
  int64_t file_bytes_ = 0;
  std::string chunk_;  // of the file; stream_ knows how much of it is left
  int64_t read_ = 0;   // bytes of the file so far
  int64_t unpacked_ = 0;
  bool at_end_ = false;
  bool packed_ = false;
  bool complete_ = false;  // the last member has ended
  z_stream stream_ = {};
};

absl::Status UnpackedFile::Source::Begin() {
  struct stat status;
  if (fstat(descriptor_, &status) != 0) return Failed(path_);
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return Failed(path_);
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": not a regular file"));
  }
  file_bytes_ = status.st_size;
  TANDEM_RETURN_IF_ERROR(Fill());
  if (!absl::StartsWith(chunk_, kGzipMagic)) return absl::OkStatus();
  if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ": no memory to unpack it"));
  }
  packed_ = true;
  return absl::OkStatus();
}

// The next chunk of the file, when the last one is used up.
absl::Status UnpackedFile::Source::Fill() {
  if (stream_.avail_in > 0 || at_end_) return absl::OkStatus();
  chunk_.resize(kChunk);
  ssize_t count;
  do {
    count = read(descriptor_, chunk_.data(), kChunk);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return Failed(path_);
  chunk_.resize(count);
  read_ += count;
  at_end_ = count == 0;
  stream_.next_in = reinterpret_cast<Bytef*>(chunk_.data());
  stream_.avail_in = static_cast<uInt>(count);
  return absl::OkStatus();
}

absl::Status UnpackedFile::Source::Read(int64_t count, std::string* content) {
  while (count > 0 && !complete_) {
    const size_t before = content->size();
    TANDEM_RETURN_IF_ERROR(Fill());
    TANDEM_RETURN_IF_ERROR(packed_ ? Unpack(count, content)
                                   : Take(count, content));
    count -= content->size() - before;
  }
  return absl::OkStatus();
}

absl::Status UnpackedFile::Source::Take(int64_t count, std::string* content) {
  const auto taken =
      static_cast<uInt>(std::min<int64_t>(count, stream_.avail_in));
  content->append(reinterpret_cast<const char*>(stream_.next_in), taken);
  stream_.next_in += taken;
  stream_.avail_in -= taken;
  complete_ = exhausted();
  return absl::OkStatus();
}

absl::Status UnpackedFile::Source::Unpack(int64_t count, std::string* content) {
  const auto room = static_cast<uInt>(std::min(count, kChunk));
  const size_t begin = content->size();
  content->resize(begin + room);
  stream_.next_out = reinterpret_cast<Bytef*>(&(*content)[begin]);
  stream_.avail_out = room;
  const int result = inflate(&stream_, Z_NO_FLUSH);
  content->resize(content->size() - stream_.avail_out);
  unpacked_ += room - stream_.avail_out;
  return Settle(result);
}

// What zlib says of its last step.
absl::Status UnpackedFile::Source::Settle(int result) {
  if (result == Z_STREAM_END) {
    TANDEM_RETURN_IF_ERROR(Fill());
    complete_ = exhausted();
    if (complete_ || inflateReset(&stream_) == Z_OK) return absl::OkStatus();
  }
  if (result == Z_OK) return absl::OkStatus();
  if (result == Z_BUF_ERROR && exhausted()) {
    return absl::DataLossError(
        absl::StrCat(path_, ": truncated: the gzip data ends early, after ",
                     read_, " bytes; fetch it again"));
  }
  if (result == Z_BUF_ERROR) return absl::OkStatus();  // wants more of the file
  return absl::DataLossError(
      absl::StrCat(path_, ": damaged: not valid gzip data after ", unpacked_,
                   " unpacked bytes; fetch it again"));
}

UnpackedFile::UnpackedFile(std::unique_ptr<Source> source)
    : source_(std::move(source)) {}
UnpackedFile::~UnpackedFile() = default;
UnpackedFile::UnpackedFile(UnpackedFile&&) = default;

absl::StatusOr<UnpackedFile> UnpackedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return Failed(path);
  auto source = std::make_unique<Source>(path, descriptor);
  TANDEM_RETURN_IF_ERROR(source->Begin());
  return UnpackedFile(std::move(source));
}

absl::Status UnpackedFile::Read(int64_t count, std::string* content) {
  return source_->Read(count, content);
}

std::optional<int64_t> UnpackedFile::length() const {
  return source_->length();
}

}  // namespace tandem
