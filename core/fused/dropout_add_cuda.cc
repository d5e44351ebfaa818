// tandem::dropout_add on CUDA devices.

#ifdef TANDEM_CUDA

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <optional>

#include "core/cuda/dropout_kernel.h"
#include "core/fused/dropout_add.h"

namespace tandem {
namespace {

DropoutType KernelType(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return DropoutType::kFloat32;
    case at::kBFloat16:
      return DropoutType::kBFloat16;
    case at::kHalf:
      return DropoutType::kFloat16;
    default:
      TORCH_CHECK_TYPE(false,
                       "dropout_add on CUDA takes float32, bfloat16 and "
                       "float16, not ",
                       x.scalar_type());
  }
}

at::Tensor DropOnCuda(const at::Tensor& x,
                      const std::optional<at::Tensor>& residual, double p,
                      int64_t key, int64_t first_sample, int64_t begin,
                      int64_t run, int64_t stride) {
  const bool adds = HasResidual(residual);
  const SamplePart part = {begin, run, stride};
  CheckDropout(x, residual, p, part);
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor in = x.contiguous();
  const at::Tensor added = adds ? residual->contiguous() : at::Tensor();
  const at::Tensor y = at::empty_like(in);
  DropoutArrays arrays;
  arrays.type = KernelType(in);
  arrays.y = y.mutable_data_ptr();
  arrays.x = in.const_data_ptr();
  arrays.residual = adds ? added.const_data_ptr() : nullptr;
  arrays.rows = in.size(0);
  arrays.columns = arrays.rows == 0 ? 0 : in.numel() / arrays.rows;
  arrays.part = part;
  C10_CUDA_CHECK(LaunchDropoutAdd(
      arrays, first_sample, MakeDropoutFactors(static_cast<uint64_t>(key), p),
      at::cuda::getCurrentCUDAStream()));
  return y;
}

TORCH_LIBRARY_IMPL(tandem, CUDA, library) {
  library.impl("dropout_add", DropOnCuda);
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_CUDA
