#include "models/functions/max_pool_function.h"

#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>

#include "models/functions/image_kernels.h"
#include "models/functions/split_backward.h"

namespace tandem {

at::Tensor MaxPool2dFunction(const at::Tensor& x, int64_t kernel_size,
                             int64_t stride, int64_t padding) {
  const bool has_backward = RecordsGradients(x, {}, {});
  const auto run = [&](const at::Tensor& images) {
    const auto [y, places] =
        at::max_pool2d_with_indices(images, kernel_size, stride, padding);
    if (!has_backward) return at::Tensor();
    return at::max_pool2d_with_indices_backward(y, images, kernel_size, stride,
                                                padding, /*dilation=*/1,
                                                /*ceil_mode=*/false, places);
  };
  const ImageOperator pool = {"max pool",
                              {kernel_size, stride, padding, has_backward}};
  return at::max_pool2d(
      InFormat(x, FasterFormat(x, x.scalar_type(), pool, run)), kernel_size,
      stride, padding);
}

}  // namespace tandem
