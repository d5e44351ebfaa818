// Kernels of operators on images, and the memory format (contiguous or
// channels-last) in which these are computed: the faster ones here, by timing.

#ifndef TANDEM_MODELS_FUNCTIONS_IMAGE_KERNELS_H_
#define TANDEM_MODELS_FUNCTIONS_IMAGE_KERNELS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tandem {

// An operator, and all that decides how fast it is beside its input.
struct ImageOperator {
  std::string name;              // "convolution"
  std::vector<int64_t> numbers;  // sizes, strides, which gradients, ...
};

// One way to compute an operator, and its backward where one is wanted, of
// images on the CPU. Returns their gradient, or nothing. Runs without autograd.
using ImageFunction = std::function<at::Tensor(const at::Tensor& images)>;

struct ImageKernel {
  std::string name;
  ImageFunction run;
};

// Which of `kernels` is the fastest for images of x's sizes [n, channels, h, w]
// and memory format, and of `dtype`: `fixed` unless kernels are measured
// (KernelChoices), x is dense, and on the CPU or a device that runs its
// kernels. The same answer for the same question, as long as nobody switches
// measuring on or off. Thread-safe.
size_t FasterKernel(const at::Tensor& x, at::ScalarType dtype,
                    const ImageOperator& image_operator,
                    absl::Span<const ImageKernel> kernels, size_t fixed);

// The memory format in which the operator is to be given x: its own, unless
// FasterKernel says that the other one is faster, the time counted that it
// takes to bring x into that format and its gradient back.
at::MemoryFormat FasterFormat(const at::Tensor& x, at::ScalarType dtype,
                              const ImageOperator& image_operator,
                              const ImageFunction& run);

// x in that format, itself where it has it. Differentiable: its gradient is in
// the format that x has.
at::Tensor InFormat(const at::Tensor& x, at::MemoryFormat format);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_IMAGE_KERNELS_H_
