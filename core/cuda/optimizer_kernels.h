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
  // Read in the place of the step's own, for what a graph repeats: learning
  // rate, bias_correction1, bias_correction2_root; null: the step's.
  const float* numbers = nullptr;
};

// How many float64 sums SumSquares writes at most.
constexpr int kFactorScratch = 1024;

// Sums of squares of `length` gradients, one for each block of threads: one
// pass over them. Returns how many there are, which depends on the length
// alone. Asynchronous in `stream`, as are the others.
int SumSquares(const float* grads, int64_t length, double* sums,
               cudaStream_t stream);
// Puts into *factor what a step is to multiply gradients by of which these are
// all the sums. Their order is one, so bits do not change from run to run.
cudaError_t FinishFactor(const double* sums, int count,
                         const FactorOptions& options, GradientFactor* factor,
                         cudaStream_t stream);

// Both, for gradients that lie side by side; `scratch`: kFactorScratch.
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
