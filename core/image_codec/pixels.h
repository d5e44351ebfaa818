// Decoded pixels: what the decoders of single formats share. For
// image_codec.cc.

#ifndef TANDEM_CORE_IMAGE_CODEC_PIXELS_H_
#define TANDEM_CORE_IMAGE_CODEC_PIXELS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {

inline constexpr int64_t kRgb = 3;

// What is left of a file that is read from its beginning to its end.
struct UnreadBytes {
  const unsigned char* next = nullptr;
  size_t left = 0;
};

// Why a decoder has jumped out: its own words, which a `longjmp` leaves alone.
struct DecoderError {
  static constexpr size_t kSize = 256;
  char text[kSize] = {};
  bool ended_early = false;
};

inline absl::Status DecoderStatus(const DecoderError& error,
                                  const char* format) {
  if (error.ended_early) {
    return absl::DataLossError(
        absl::StrCat("truncated: the ", format, " data ends early"));
  }
  return absl::DataLossError(
      absl::StrCat("damaged or of a kind that is not read: no valid ", format,
                   " data (", error.text, ")"));
}

inline absl::Status CheckPixels(int64_t width, int64_t height,
                                int64_t most_pixels) {
  if (width > 0 && height > 0 && width <= most_pixels / height) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("an image of ", width, " x ", height,
                   " pixels: expected no more than ", most_pixels, " pixels"));
}

}  // namespace tandem

#endif  // TANDEM_CORE_IMAGE_CODEC_PIXELS_H_
