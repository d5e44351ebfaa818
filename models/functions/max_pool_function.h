// Max pooling of images, in the faster memory format.

#ifndef TANDEM_MODELS_FUNCTIONS_MAX_POOL_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_MAX_POOL_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

// torch.nn.functional.max_pool2d of x [n, channels, h, w], with its bits; where
// kernels are measured, in the memory format that is the faster one
// (models/functions/image_kernels.h), which the result has then.
at::Tensor MaxPool2dFunction(const at::Tensor& x, int64_t kernel_size,
                             int64_t stride, int64_t padding);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_MAX_POOL_FUNCTION_H_
