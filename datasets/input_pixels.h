// Input pixels: from a network's input back to the image that it was.

#ifndef TANDEM_DATASETS_INPUT_PIXELS_H_
#define TANDEM_DATASETS_INPUT_PIXELS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "datasets/dataset.h"

namespace tandem {

// Whether inputs of this shape can be shown: [height, width], or [channels,
// height, width] with one channel (grey) or three (red, green and blue).
bool IsImageShape(absl::Span<const int64_t> shape);

// The image of one sample's `input`, float32 on the CPU: uint8 [channels,
// height, width], whose bytes are 255 times input * std + mean, rounded, by the
// data set's `pixels` (Dataset::pixels): those that its input was made of.
// Without `pixels`, the least value is 0 and the greatest 255. What is less
// than 0, or NaN, becomes 0, and what is more than 255 that.
//
// InvalidArgument for a tensor of another kind or shape, and for other than no
// `pixels`, one, or one for each channel.
absl::StatusOr<at::Tensor> InputPixels(
    const at::Tensor& input, const std::vector<PixelStatistics>& pixels);

}  // namespace tandem

#endif  // TANDEM_DATASETS_INPUT_PIXELS_H_
