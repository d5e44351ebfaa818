// Convolution by LibTorch's kernels, with a backward that can be split.

#ifndef TANDEM_MODELS_FUNCTIONS_CONV2D_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CONV2D_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "models/functions/image_patches.h"
#include "models/functions/split_backward.h"

namespace tandem {

// torch.nn.functional.conv2d, bit for bit: x [n, in, h, w], weight [out, in,
// kernel, kernel], bias [out] or undefined. Where kernels are measured, in the
// faster memory format (models/functions/image_kernels.h). Run under a
// WeightGradientSink it leaves weight's and bias's gradients there.
//
// Under autocast a float32 weight is used in the lower precision; its gradient
// is float32.
at::Tensor Conv2dFunction(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias, int64_t stride,
                          int64_t padding);

// The dtype in which x is convolved: its own, or that of autocast.
at::ScalarType ConvolutionDtype(const at::Tensor& x);

// Another way to compute a convolution without a bias.
struct ConvolutionKernel {
  std::string name;
  // Computes it, and the gradients that are wanted, of images and a weight of
  // ConvolutionDtype on the CPU. Returns the images' gradient, or nothing. Runs
  // without autograd.
  std::function<at::Tensor(const at::Tensor& images, const at::Tensor& weight,
                           const WantedGradients& wanted)>
      run;
};

// Whether `other` is faster than Conv2dFunction: `fixed`, unless kernels are
// measured (FasterKernel). The shape fits.
bool IsFasterThanConv2d(const ConvolutionKernel& other, const at::Tensor& x,
                        const at::Tensor& weight, const PatchShape& shape,
                        bool fixed);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CONV2D_FUNCTION_H_
