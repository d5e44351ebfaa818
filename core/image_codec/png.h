// PNG: pixels of a file's bytes and back, by libpng. For image_codec.cc.

#ifndef TANDEM_CORE_IMAGE_CODEC_PNG_H_
#define TANDEM_CORE_IMAGE_CODEC_PNG_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// uint8 [height, width, 3]. Errors as DecodeImage has them.
absl::StatusOr<at::Tensor> DecodePng(absl::string_view bytes,
                                     int64_t most_pixels);

// A file of `pixels`, contiguous uint8 [height, width, 1, 3 or 4], with no size
// of 0 or above 2^31 - 1.
absl::StatusOr<std::string> PngBytes(const at::Tensor& pixels);

}  // namespace tandem

#endif  // TANDEM_CORE_IMAGE_CODEC_PNG_H_
