#include "core/image_codec/png.h"

#include <ATen/ops/empty.h>
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/image_codec/pixels.h"

namespace tandem {
namespace {

// libpng leaves by longjmp when it meets an error. What it may jump out of, the
// functions with `setjmp` in them and those that libpng calls, has no objects
// with destructors.

constexpr png_alloc_size_t kMostChunkBytes = 1 << 20;

void Fail(png_structp png, png_const_charp message) {
  auto* const error = static_cast<DecoderError*>(png_get_error_ptr(png));
  std::strncpy(error->text, message, DecoderError::kSize - 1);
  png_longjmp(png, 1);
}

void Ignore(png_structp, png_const_charp) {}

class PngReader {
 public:
  explicit PngReader(absl::string_view bytes)
      : unread_{reinterpret_cast<const unsigned char*>(bytes.data()),
                bytes.size()} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &error_, Fail, Ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool is_ready() const { return info_ != nullptr; }
  const DecoderError& error() const { return error_; }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }

  // Up to the first pixel. False: there was an error.
  bool ReadHeader() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_set_read_fn(png_, this, Read);
    png_read_info(png_, info_);
    return true;
  }

  // All rows, as RGB, to `pixels`.
  bool ReadPixels(unsigned char* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_strip_16(png_);
    png_set_expand(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const auto row_bytes = static_cast<size_t>(width() * kRgb);
    if (png_get_rowbytes(png_, info_) != row_bytes) {
      png_error(png_, "rows of another size than RGB has");
    }
    const int64_t rows = height();
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t row = 0; row < rows; ++row) {
        png_read_row(png_, pixels + row * row_bytes, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  static void Read(png_structp png, png_bytep to, size_t count) {
    auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > reader->unread_.left) {
      reader->error_.ended_early = true;
      png_error(png, "the file ends early");
    }
    std::memcpy(to, reader->unread_.next, count);
    reader->unread_.next += count;
    reader->unread_.left -= count;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  UnreadBytes unread_;
  DecoderError error_;
};

class PngWriter {
 public:
  PngWriter() {
    png_ =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &error_, Fail, Ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  bool is_ready() const { return info_ != nullptr; }
  const DecoderError& error() const { return error_; }

  bool Write(const unsigned char* pixels, int64_t height, int64_t width,
             int64_t channels, std::string* bytes) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_write_fn(png_, bytes, Append, nullptr);
    const int kind = channels == 1   ? PNG_COLOR_TYPE_GRAY
                     : channels == 3 ? PNG_COLOR_TYPE_RGB
                                     : PNG_COLOR_TYPE_RGB_ALPHA;
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(width),
                 static_cast<png_uint_32>(height), 8, kind, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    for (int64_t row = 0; row < height; ++row) {
      png_write_row(png_, pixels + row * width * channels);
    }
    png_write_end(png_, info_);
    return true;
  }

 private:
  static void Append(png_structp png, png_bytep from, size_t count) {
    static_cast<std::string*>(png_get_io_ptr(png))
        ->append(reinterpret_cast<const char*>(from), count);
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  DecoderError error_;
};

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("no memory for libpng");
}

}  // namespace

absl::StatusOr<at::Tensor> DecodePng(absl::string_view bytes,
                                     int64_t most_pixels) {
  PngReader reader(bytes);
  if (!reader.is_ready()) return NoMemory();
  if (!reader.ReadHeader()) return DecoderStatus(reader.error(), "PNG");
  TANDEM_RETURN_IF_ERROR(
      CheckPixels(reader.width(), reader.height(), most_pixels));
  const at::Tensor pixels =
      at::empty({reader.height(), reader.width(), kRgb}, at::kByte);
  if (!reader.ReadPixels(pixels.mutable_data_ptr<uint8_t>())) {
    return DecoderStatus(reader.error(), "PNG");
  }
  return pixels;
}

absl::StatusOr<std::string> PngBytes(const at::Tensor& pixels) {
  PngWriter writer;
  if (!writer.is_ready()) return NoMemory();
  std::string bytes;
  if (!writer.Write(pixels.const_data_ptr<uint8_t>(), pixels.size(0),
                    pixels.size(1), pixels.size(2), &bytes)) {
    return absl::InternalError(absl::StrCat("libpng: ", writer.error().text));
  }
  return bytes;
}

}  // namespace tandem
