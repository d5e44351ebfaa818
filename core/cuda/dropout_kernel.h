// Dropout kernel: dropout with a residual connection in one pass, whose mask is
// a function of the place (core/fused/dropout_add.h) and is never in memory.

#ifndef TANDEM_CORE_CUDA_DROPOUT_KERNEL_H_
#define TANDEM_CORE_CUDA_DROPOUT_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/dropout_elements.h"

namespace tandem {

enum class DropoutType { kFloat32, kBFloat16, kFloat16 };

// Contiguous [rows, columns], in the current device's memory, of one type.
struct DropoutArrays {
  DropoutType type = DropoutType::kFloat32;
  void* y = nullptr;
  const void* x = nullptr;
  const void* residual = nullptr;  // null: none
  int64_t rows = 0;
  int64_t columns = 0;
  SamplePart part = {};  // of its sample, what a row holds
};

// Row r is sample `first_sample` + r. Computed in float32, with the bits of the
// CPU's. Asynchronous in `stream`.
cudaError_t LaunchDropoutAdd(const DropoutArrays& arrays, int64_t first_sample,
                             const DropoutFactors& factors,
                             cudaStream_t stream);

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_DROPOUT_KERNEL_H_
