// Which tensors the fused kernels of core/fused take.

#ifndef TANDEM_MODELS_FUNCTIONS_FUSED_OPERANDS_H_
#define TANDEM_MODELS_FUNCTIONS_FUSED_OPERANDS_H_

#include <ATen/core/Tensor.h>

#include "core/device/host_memory.h"

namespace tandem {

// Float or bf16, dense, on the CPU or on a device that runs its kernels.
inline bool IsForFusedKernels(const at::Tensor& x) {
  return RunsCpuKernels(x.device().type()) && x.layout() == at::kStrided &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         x.dim() > 0;
}

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_FUSED_OPERANDS_H_
