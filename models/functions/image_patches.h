// Patches of images (im2col, col2im): a convolution as a product of matrices.

#ifndef TANDEM_MODELS_FUNCTIONS_IMAGE_PATCHES_H_
#define TANDEM_MODELS_FUNCTIONS_IMAGE_PATCHES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// Square kernels, zeros around the image.
struct PatchShape {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  // Size of the output, for an image that is `size` high or wide.
  int64_t OutputSize(int64_t size) const {
    return (size + 2 * padding - kernel) / stride + 1;
  }

  // Whether there is an output of images x [n, channels, h, w] and a weight
  // [out, channels, kernel, kernel].
  bool Fits(const at::Tensor& x, const at::Tensor& weight) const {
    return x.dim() == 4 && weight.dim() == 4 && x.size(1) == weight.size(1) &&
           weight.size(2) == kernel && weight.size(3) == kernel &&
           x.size(2) + 2 * padding >= kernel &&
           x.size(3) + 2 * padding >= kernel;
  }
};

// Patches of a convolution as the rows of a matrix (im2col).
// images [n, channels, h, w], float or bf16 on the CPU, any strides -> [n * oh
// * ow, channels * kernel * kernel]: row by row what the kernel sees at each
// place, in the order of a weight [out, channels, kernel, kernel].
at::Tensor PatchRows(const at::Tensor& images, const PatchShape& shape);

// The transpose of PatchRows as a linear map (col2im): every element of `rows`
// is added, in float, where it came from. -> [n, channels, h, w] as `sizes`
// say, float in `format`.
at::Tensor SumPatchRows(const at::Tensor& rows, at::IntArrayRef sizes,
                        const PatchShape& shape,
                        at::MemoryFormat format = at::MemoryFormat::Contiguous);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_IMAGE_PATCHES_H_
