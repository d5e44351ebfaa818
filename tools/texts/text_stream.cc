#include "tools/texts/text_stream.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/regular_file.h"

namespace tandem {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int kMostZstdWindowLog = 27;  // 128 MiB

absl::Status EndsEarly(const std::string& path, const char* format) {
  return absl::DataLossError(absl::StrCat(path, " is truncated: the ", format,
                                          " data ends early; fetch it again"));
}

class PlainStream : public TextStream {
 public:
  explicit PlainStream(RegularFile file) : file_(std::move(file)) {}

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    const auto count = std::min<uint64_t>(size, file_.size() - read_);
    TANDEM_RETURN_IF_ERROR(file_.ReadAt(read_, to, count));
    read_ += count;
    return static_cast<size_t>(count);
  }

  int64_t bytes_read() const override { return static_cast<int64_t>(read_); }

 private:
  const RegularFile file_;
  uint64_t read_ = 0;
};

// The packed bytes of a file, a part at a time.
class PackedBytes {
 public:
  explicit PackedBytes(RegularFile file)
      : file_(std::move(file)), buffer_(kBufferBytes) {}

  const std::string& path() const { return file_.path(); }
  int64_t bytes_read() const { return static_cast<int64_t>(read_) - left(); }

  const unsigned char* next() const { return buffer_.data() + taken_; }
  size_t left() const { return filled_ - taken_; }
  void Skip(size_t count) { taken_ += count; }

  // Reads on where nothing is left of the part. Afterwards something is, unless
  // the file has ended.
  absl::Status Fill() {
    if (left() > 0) return absl::OkStatus();
    const auto count = std::min<uint64_t>(buffer_.size(), file_.size() - read_);
    TANDEM_RETURN_IF_ERROR(file_.ReadAt(read_, buffer_.data(), count));
    read_ += count;
    filled_ = static_cast<size_t>(count);
    taken_ = 0;
    return absl::OkStatus();
  }

 private:
  const RegularFile file_;
  std::vector<unsigned char> buffer_;
  uint64_t read_ = 0;
  size_t filled_ = 0;
  size_t taken_ = 0;
};

// One or several members behind each other, as gzip and bgzip write them.
class GzipStream : public TextStream {
 public:
  explicit GzipStream(RegularFile file) : packed_(std::move(file)) {
    is_ready_ = inflateInit2(&zlib_, 16 + MAX_WBITS) == Z_OK;
  }
  ~GzipStream() override { inflateEnd(&zlib_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (!is_ready_) return absl::ResourceExhaustedError("no memory for zlib");
    size_t done = 0;
    while (done < size && !has_ended_) {
      TANDEM_RETURN_IF_ERROR(packed_.Fill());
      if (is_between_) {
        TANDEM_RETURN_IF_ERROR(SkipPadding());
        if (has_ended_) break;
      }
      if (packed_.left() == 0) return EndsEarly(packed_.path(), "gzip");
      is_between_ = false;
      TANDEM_ASSIGN_OR_RETURN(const size_t got,
                              Inflate(to + done, size - done));
      done += got;
    }
    return done;
  }

  int64_t bytes_read() const override { return packed_.bytes_read(); }

 private:
  // Zeros up to the end, or to what is no zero and should be a member.
  absl::Status SkipPadding() {
    while (packed_.left() > 0 && *packed_.next() == 0) {
      packed_.Skip(1);
      TANDEM_RETURN_IF_ERROR(packed_.Fill());
    }
    has_ended_ = packed_.left() == 0;
    if (has_ended_ || *packed_.next() == 0x1f) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(packed_.path(), " is damaged: byte ", packed_.bytes_read(),
                     " lies behind the gzip data and begins no more of it"));
  }

  absl::StatusOr<size_t> Inflate(char* to, size_t size) {
    const auto room = static_cast<uInt>(std::min(size, kBufferBytes));
    const size_t left = packed_.left();
    zlib_.next_in = const_cast<unsigned char*>(packed_.next());
    zlib_.avail_in = static_cast<uInt>(left);
    zlib_.next_out = reinterpret_cast<unsigned char*>(to);
    zlib_.avail_out = room;
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    packed_.Skip(left - zlib_.avail_in);
    if (result == Z_STREAM_END) {
      is_between_ = true;
      inflateReset(&zlib_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return absl::DataLossError(absl::StrCat(
          packed_.path(), " is damaged: no valid gzip data at byte ",
          packed_.bytes_read(),
          zlib_.msg == nullptr ? "" : absl::StrCat(", ", zlib_.msg),
          "; fetch it again"));
    }
    return room - zlib_.avail_out;
  }

  PackedBytes packed_;
  z_stream zlib_ = {};
  bool is_ready_ = false;
  bool is_between_ = false;  // behind a member, and before another or the end
  bool has_ended_ = false;
};

// One or several frames behind each other, as zstd and pzstd write them.
class ZstdStream : public TextStream {
 public:
  explicit ZstdStream(RegularFile file)
      : packed_(std::move(file)), zstd_(ZSTD_createDStream()) {
    ZSTD_DCtx_setParameter(zstd_, ZSTD_d_windowLogMax, kMostZstdWindowLog);
  }
  ~ZstdStream() override { ZSTD_freeDStream(zstd_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  absl::StatusOr<size_t> Read(char* to, size_t size) override {
    if (zstd_ == nullptr) {
      return absl::ResourceExhaustedError("no memory for zstd");
    }
    ZSTD_outBuffer out = {to, size, 0};
    while (out.pos < size) {
      TANDEM_RETURN_IF_ERROR(packed_.Fill());
      // It may still have bytes to give of what it has taken.
      const bool is_at_end = packed_.left() == 0;
      if (is_at_end && is_between_) break;
      const size_t before = out.pos;
      ZSTD_inBuffer in = {packed_.next(), packed_.left(), 0};
      const size_t result = ZSTD_decompressStream(zstd_, &out, &in);
      packed_.Skip(in.pos);
      TANDEM_RETURN_IF_ERROR(Check(result));
      is_between_ = result == 0;
      if (is_at_end && !is_between_ && out.pos == before) {
        return EndsEarly(packed_.path(), "zstd");
      }
    }
    return out.pos;
  }

  int64_t bytes_read() const override { return packed_.bytes_read(); }

 private:
  absl::Status Check(size_t result) const {
    if (!ZSTD_isError(result)) return absl::OkStatus();
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      return absl::InvalidArgumentError(absl::StrCat(
          packed_.path(),
          " needs more than 128 MiB to be unpacked: pack it again, without "
          "zstd --long or --ultra"));
    }
    return absl::DataLossError(
        absl::StrCat(packed_.path(), " is damaged: no valid zstd data at byte ",
                     packed_.bytes_read(), " (", ZSTD_getErrorName(result),
                     "); fetch it again"));
  }

  PackedBytes packed_;
  ZSTD_DStream* const zstd_;
  bool is_between_ = false;  // behind a frame, and before another or the end
};

}  // namespace

Packing PackingByName(const std::string& path) {
  if (absl::EndsWithIgnoreCase(path, ".gz")) return Packing::kGzip;
  if (absl::EndsWithIgnoreCase(path, ".zst")) return Packing::kZstd;
  return Packing::kNone;
}

absl::StatusOr<std::unique_ptr<TextStream>> TextStream::Open(
    const std::string& path, Packing packing) {
  TANDEM_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
  std::unique_ptr<TextStream> stream;
  switch (packing) {
    case Packing::kGzip:
      stream = std::make_unique<GzipStream>(std::move(file));
      break;
    case Packing::kZstd:
      stream = std::make_unique<ZstdStream>(std::move(file));
      break;
    case Packing::kNone:
      stream = std::make_unique<PlainStream>(std::move(file));
      break;
  }
  return stream;
}

absl::StatusOr<int64_t> UnpackedBytes(const std::string& path,
                                      Packing packing) {
  TANDEM_ASSIGN_OR_RETURN(const auto stream, TextStream::Open(path, packing));
  std::vector<char> block(kBufferBytes);
  int64_t bytes = 0;
  for (size_t got = block.size(); got == block.size();) {
    TANDEM_ASSIGN_OR_RETURN(got, stream->Read(block.data(), block.size()));
    bytes += static_cast<int64_t>(got);
  }
  return bytes;
}

}  // namespace tandem
