// Convolution without a bias, by the fastest way for its shape.

#ifndef TANDEM_MODELS_FUNCTIONS_CONVOLUTION_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CONVOLUTION_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

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
// Where kernels are measured, products are tried up to so many.
constexpr int64_t kGreatestMeasuredOutput = 16;

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CONVOLUTION_FUNCTION_H_
