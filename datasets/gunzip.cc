#include "datasets/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kGzipMagic[] = "\x1f\x8b";
constexpr int64_t kChunk = int64_t{1} << 20;

absl::Status TooLong(const std::string& path, int64_t max_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      path, ": more than ", max_bytes, " bytes; not a file of this kind"));
}

absl::Status Failed(const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message)
                         : absl::FailedPreconditionError(message);
}

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return Failed(path);
  std::string content;
  for (;;) {
    const size_t begin = content.size();
    content.resize(begin + kChunk);
    const size_t count = std::fread(&content[begin], 1, kChunk, file.get());
    content.resize(begin + count);
    if (std::ferror(file.get())) return Failed(path);
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return TooLong(path, max_bytes);
    }
    if (count == 0) return content;
  }
}

// zlib's decoder of gzip streams, released at the end of its scope.
class Inflater {
 public:
  explicit Inflater(const std::string& packed) {
    stream_.next_in =
        reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    remaining_ = packed.size();
    ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ready() const { return ready_; }
  bool exhausted() const { return remaining_ == 0 && stream_.avail_in == 0; }
  bool Reset() { return inflateReset(&stream_) == Z_OK; }

  // Appends up to a chunk to `unpacked`; zlib's result.
  int Step(std::string& unpacked) {
    if (stream_.avail_in == 0) {
      // avail_in is 32 bits wide; the file may be longer.
      stream_.avail_in =
          static_cast<uInt>(std::min<size_t>(remaining_, kChunk));
      remaining_ -= stream_.avail_in;
    }
    const size_t begin = unpacked.size();
    unpacked.resize(begin + kChunk);
    stream_.next_out = reinterpret_cast<Bytef*>(&unpacked[begin]);
    stream_.avail_out = static_cast<uInt>(kChunk);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    unpacked.resize(unpacked.size() - stream_.avail_out);
    return result;
  }

 private:
  z_stream stream_ = {};
  size_t remaining_ = 0;
  bool ready_ = false;
};

absl::StatusOr<std::string> Gunzip(const std::string& packed,
                                   const std::string& path, int64_t max_bytes) {
  Inflater inflater(packed);
  if (!inflater.ready()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": no memory to unpack it"));
  }
  std::string unpacked;
  for (;;) {
    const int result = inflater.Step(unpacked);
    if (static_cast<int64_t>(unpacked.size()) > max_bytes) {
      return TooLong(path, max_bytes);
    }
    if (result == Z_STREAM_END) {
      if (inflater.exhausted()) return unpacked;
      if (inflater.Reset()) continue;
    }
    if (result == Z_OK) continue;
    if (result == Z_BUF_ERROR && inflater.exhausted()) {
      return absl::DataLossError(
          absl::StrCat(path, ": truncated: the gzip data ends early, after ",
                       packed.size(), " bytes; fetch it again"));
    }
    return absl::DataLossError(
        absl::StrCat(path, ": damaged: not valid gzip data after ",
                     unpacked.size(), " unpacked bytes; fetch it again"));
  }
}

}  // namespace

absl::StatusOr<std::string> ReadFileGunzip(const std::string& path,
                                           int64_t max_bytes) {
  absl::StatusOr<std::string> content = ReadFile(path, max_bytes);
  if (!content.ok() || !absl::StartsWith(*content, kGzipMagic)) return content;
  return Gunzip(*content, path, max_bytes);
}

}  // namespace tandem
