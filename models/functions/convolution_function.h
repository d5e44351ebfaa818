// Convolution with a backward that can be split, as LibTorch computes it or by
// the fastest way for its shape.

#ifndef TANDEM_MODELS_FUNCTIONS_CONVOLUTION_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CONVOLUTION_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// torch.nn.functional.conv2d, bit for bit: x [n, in, h, w], weight [out, in,
// kernel, kernel], bias [out] or undefined. Run under a WeightGradientSink it
// leaves weight's and bias's gradients there.
//
// Under autocast a float32 weight is used in the lower precision; its gradient
// is float32.
at::Tensor Conv2dFunction(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, int64_t stride,
                          int64_t padding);

// Square kernels, zeros around the image.
struct PatchShape {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;

  // Size of the output, for an image that is `size` high or wide.
  int64_t OutputSize(int64_t size) const {
    return (size + 2 * padding - kernel) / stride + 1;
  }
};

// Patches of a convolution as the rows of a matrix (im2col).
// images [n, channels, h, w], float32 on the CPU, any strides -> [n * oh * ow,
// channels * kernel * kernel]: row by row what the kernel sees at each place,
// in the order of a weight [out, channels, kernel, kernel].
at::Tensor PatchRows(const at::Tensor& images, const PatchShape& shape);

// The transpose of PatchRows as a linear map (col2im): every element of `rows`
// is added where it came from. -> [n, channels, h, w] as `sizes` say.
at::Tensor SumPatchRows(const at::Tensor& rows, at::IntArrayRef sizes,
                        const PatchShape& shape);

// torch.nn.functional.conv2d without a bias: x [n, in, h, w], weight [out, in,
// kernel, kernel] -> [n, out, oh, ow].
//
// Where the output is only a few pixels large (the last layers of a ResNet on
// small images) oneDNN's kernels use a small part of the processor, the one for
// the weight's gradient a sixth. There a float32 convolution on the CPU is done
// as products of matrices instead (Chellapilla et al., "High Performance
// Convolutional Neural Networks for Document Processing", 2006), and is one
// node of the autograd graph, differentiable once; the patches are kept for
// backward. Results differ by rounding. All else goes to Conv2dFunction. Runs
// under a WeightGradientSink.
at::Tensor ConvolutionFunction(const at::Tensor& x, const at::Tensor& weight,
                               int64_t stride, int64_t padding);

// An output of up to so many pixels is small.
constexpr int64_t kGreatestSmallOutput = 4;

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CONVOLUTION_FUNCTION_H_
