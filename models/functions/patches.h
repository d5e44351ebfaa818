// Patches of a convolution as the rows of a matrix, and back (im2col, col2im).

#ifndef TANDEM_MODELS_FUNCTIONS_PATCHES_H_
#define TANDEM_MODELS_FUNCTIONS_PATCHES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// Square kernels, zeros around the image.
struct PatchShape {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  // Of the output, for an image that is `size` high or wide.
  int64_t OutputSize(int64_t size) const {
    return (size + 2 * padding - kernel) / stride + 1;
  }
};

// images [n, channels, h, w], float32 on the CPU, any strides -> [n * oh * ow,
// channels * kernel * kernel]: row by row what the kernel sees at each place,
// in the order of a weight [out, channels, kernel, kernel].
at::Tensor PatchRows(const at::Tensor& images, const PatchShape& shape);

// The transpose of PatchRows as a linear map: every element of `rows` is added
// where it came from. -> [n, channels, h, w] as `sizes` say.
at::Tensor SumPatchRows(const at::Tensor& rows, at::IntArrayRef sizes,
                        const PatchShape& shape);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_PATCHES_H_
