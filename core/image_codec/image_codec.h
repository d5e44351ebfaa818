// Image codec: pixels of PNG and JPEG files, and PNG files of pixels.

#ifndef TANDEM_CORE_IMAGE_CODEC_IMAGE_CODEC_H_
#define TANDEM_CORE_IMAGE_CODEC_IMAGE_CODEC_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// The most pixels that an image may have, unless it is said otherwise: Pillow's
// MAX_IMAGE_PIXELS, a quarter of a GiB in RGB.
inline constexpr int64_t kMostImagePixels = 89478485;

// The image in a PNG or JPEG file's `bytes` as uint8 [3, height, width], red,
// green and blue: torchvision.io.decode_image(mode=RGB), or Pillow's
// Image.open(...).convert("RGB"). In memory a pixel's three values lie side by
// side. The bytes decide which of the two it is. The same bits on every
// processor; Pillow's bits, but where a PNG has 16 bits of grey.
//
// PNG: of 16 bits the upper 8 count, a palette's and grey pixels become RGB,
// alpha is dropped, interlaced ones are read as others are. JPEG: baseline and
// progressive, of 8 bits, grey, RGB, YCbCr, CMYK and YCCK (inverted, as Adobe
// writes them; without a colour profile). What EXIF says of the orientation is
// not looked at, as there.
//
// InvalidArgument, which says what it is, for bytes that are neither; for more
// than `most_pixels`, before memory is taken for them; for what is not read (12
// bits, lossless JPEG). DataLoss for damaged and truncated ones. Thread-safe.
absl::StatusOr<at::Tensor> DecodeImage(absl::string_view bytes,
                                       int64_t most_pixels = kMostImagePixels);

// The same of a file, which errors name. The errors of the file system;
// InvalidArgument for more than 256 MiB.
absl::StatusOr<at::Tensor> DecodeImageFile(
    const std::string& path, int64_t most_pixels = kMostImagePixels);

// Order of an image's dimensions: channels, height and width (PyTorch's), or
// height, width and channels (numpy's, matplotlib's).
enum class ImageLayout { kChw, kHwc };

// `image`, uint8 on the CPU, as a PNG file's bytes (torchvision.io.encode_png):
// 1 channel is grey, 3 are red, green and blue, 4 those and alpha. The same
// bytes each time. InvalidArgument for other tensors. Thread-safe.
absl::StatusOr<std::string> EncodePng(const at::Tensor& image,
                                      ImageLayout layout = ImageLayout::kChw);

}  // namespace tandem

#endif  // TANDEM_CORE_IMAGE_CODEC_IMAGE_CODEC_H_
