// JPEG: pixels of a file's bytes, by libjpeg-turbo. For image_codec.cc.

#ifndef TANDEM_CORE_IMAGE_CODEC_JPEG_H_
#define TANDEM_CORE_IMAGE_CODEC_JPEG_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// uint8 [height, width, 3]. Errors as DecodeImage has them.
absl::StatusOr<at::Tensor> DecodeJpeg(absl::string_view bytes,
                                      int64_t most_pixels);

}  // namespace tandem

#endif  // TANDEM_CORE_IMAGE_CODEC_JPEG_H_
