// Fused optimizer steps over flat buffers on a GPU: unscaling, the finite
// check, clipping and the update in two passes over the gradients, without a
// wait of the host.

#ifndef TANDEM_CORE_CUDA_OPTIMIZER_KERNELS_H_
#define TANDEM_CORE_CUDA_OPTIMIZER_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/cuda/optimizer_elements.h"

namespace tandem {

// Everything is in the memory of the current device, and float32. Buffers are
// contiguous, do not overlap, and begin at multiples of 16 bytes.
struct StepBuffers {
  float* values = nullptr;
  const float* grads = nullptr;  // left as they are
  float* first = nullptr;        // momentum buffer or exp_avg; null: none
  float* second = nullptr;       // exp_avg_sq; null: none
  int64_t length = 0;            // elements
};

// How many float64 FindGradientFactor needs as scratch.
constexpr int kFactorScratch = 1024;

// Puts into *factor what a step is to multiply `length` gradients by. One pass
// over them; the sum is in one order for a length, so its bits do not change
// from run to run. Asynchronous in `stream`, as are the others.
cudaError_t FindGradientFactor(const float* grads, int64_t length,
                               const FactorOptions& options, double* scratch,
                               GradientFactor* factor, cudaStream_t stream);

// One step of all elements. *factor is read on the device, so it may be of a
// FindGradientFactor that is still in the stream; null: 1, and no skipping.
cudaError_t LaunchStep(const StepBuffers& buffers, const SgdStep& step,
                       const GradientFactor* factor, cudaStream_t stream);
cudaError_t LaunchStep(const StepBuffers& buffers, const AdamStep& step,
                       const GradientFactor* factor, cudaStream_t stream);

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_OPTIMIZER_KERNELS_H_
