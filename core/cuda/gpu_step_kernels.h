// Step kernels of GPUs: optimizer_kernels.h for tensors and streams of
// LibTorch.

#ifndef TANDEM_CORE_CUDA_GPU_STEP_KERNELS_H_
#define TANDEM_CORE_CUDA_GPU_STEP_KERNELS_H_

#include "core/cuda/step_kernels.h"

namespace tandem {

// No call waits for the GPU.
const StepKernels& GpuStepKernels();

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_GPU_STEP_KERNELS_H_
