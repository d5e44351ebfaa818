#include "core/image_codec/jpeg.h"

#include <ATen/ops/empty.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

// They need size_t and FILE before.
#include <jerror.h>
#include <jpeglib.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/image_codec/pixels.h"

namespace tandem {
namespace {

// Usual progressive files have ten. Each goes over all of the image's memory,
// whatever few bytes it has.
constexpr int kMostScans = 100;

// libjpeg leaves by longjmp when it meets an error. What it may jump out of,
// the functions with `setjmp` in them and those that libjpeg calls, has no
// objects with destructors.
class JpegReader {
 public:
  explicit JpegReader(absl::string_view bytes)
      : unread_{reinterpret_cast<const unsigned char*>(bytes.data()),
                bytes.size()} {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = Fail;
    errors_.emit_message = Ignore;
    source_.init_source = Nothing;
    source_.fill_input_buffer = EndEarly;
    source_.skip_input_data = Skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = Nothing;
    progress_.progress_monitor = CountScans;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const DecoderError& error() const { return error_; }
  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }
  int components() const { return info_.num_components; }
  // In CMYK, which libjpeg does not make RGB of.
  bool is_cmyk() const {
    return info_.jpeg_color_space == JCS_CMYK ||
           info_.jpeg_color_space == JCS_YCCK;
  }
  bool is_known() const { return info_.jpeg_color_space != JCS_UNKNOWN; }

  // Up to the first pixel. False: there was an error.
  bool ReadHeader() {
    if (setjmp(jump_) != 0) return false;
    info_.client_data = this;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    source_.next_input_byte = unread_.next;
    source_.bytes_in_buffer = unread_.left;
    info_.src = &source_;
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  // All rows to `pixels`, as RGB; of CMYK each by way of `row`.
  bool ReadPixels(unsigned char* pixels, unsigned char* row) {
    if (setjmp(jump_) != 0) return false;
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      unsigned char* const to =
          pixels + int64_t{info_.output_scanline} * width() * kRgb;
      JSAMPROW target = is_cmyk() ? row : to;
      jpeg_read_scanlines(&info_, &target, 1);
      if (is_cmyk()) CmykToRgb(row, to);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  static void Fail(j_common_ptr info) {
    auto* const reader = static_cast<JpegReader*>(info->client_data);
    char text[JMSG_LENGTH_MAX] = {};
    info->err->format_message(info, text);
    std::strncpy(reader->error_.text, text, DecoderError::kSize - 1);
    std::longjmp(reader->jump_, 1);
  }

  static void Ignore(j_common_ptr, int) {}
  static void Nothing(j_decompress_ptr) {}

  static boolean EndEarly(j_decompress_ptr info) {
    static_cast<JpegReader*>(info->client_data)->error_.ended_early = true;
    ERREXIT(info, JERR_INPUT_EOF);
    return FALSE;
  }

  static void Skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    const auto bytes = static_cast<size_t>(count);
    if (bytes > info->src->bytes_in_buffer) EndEarly(info);
    info->src->next_input_byte += bytes;
    info->src->bytes_in_buffer -= bytes;
  }

  static void CountScans(j_common_ptr info) {
    const auto* const decompress = reinterpret_cast<j_decompress_ptr>(info);
    if (decompress->input_scan_number <= kMostScans) return;
    auto* const reader = static_cast<JpegReader*>(info->client_data);
    std::snprintf(reader->error_.text, DecoderError::kSize,
                  "more than %d scans", kMostScans);
    std::longjmp(reader->jump_, 1);
  }

  // Pillow's arithmetic. `row` has what is not absorbed: white is 255.
  void CmykToRgb(const unsigned char* row, unsigned char* to) const {
    for (int64_t i = 0; i < width(); ++i, row += 4, to += kRgb) {
      for (int64_t channel = 0; channel < kRgb; ++channel) {
        const int light = row[3];
        const int product = (255 - row[channel]) * light + 128;
        to[channel] = static_cast<unsigned char>(
            light - ((product + (product >> 8)) >> 8));
      }
    }
  }

  UnreadBytes unread_;
  DecoderError error_;
  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_;
};

}  // namespace

absl::StatusOr<at::Tensor> DecodeJpeg(absl::string_view bytes,
                                      int64_t most_pixels) {
  JpegReader reader(bytes);
  if (!reader.ReadHeader()) return DecoderStatus(reader.error(), "JPEG");
  TANDEM_RETURN_IF_ERROR(
      CheckPixels(reader.width(), reader.height(), most_pixels));
  if (!reader.is_known()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "JPEG with ", reader.components(),
        " components of no known colours: expected grey, RGB, YCbCr, CMYK or "
        "YCCK"));
  }
  const at::Tensor pixels =
      at::empty({reader.height(), reader.width(), kRgb}, at::kByte);
  std::vector<unsigned char> row(
      reader.is_cmyk() ? static_cast<size_t>(reader.width() * 4) : 0);
  if (!reader.ReadPixels(pixels.mutable_data_ptr<uint8_t>(), row.data())) {
    return DecoderStatus(reader.error(), "JPEG");
  }
  return pixels;
}

}  // namespace tandem
