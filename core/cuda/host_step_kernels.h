// Step kernels of the host: the arithmetic of the GPU's, for devices in the
// host's memory (core/device/host_memory.h).

#ifndef TANDEM_CORE_CUDA_HOST_STEP_KERNELS_H_
#define TANDEM_CORE_CUDA_HOST_STEP_KERNELS_H_

#include "core/cuda/step_kernels.h"

namespace tandem {

// Operators of LibTorch (tandem::gradient_factor, sgd_step, adam_step), so that
// simulated devices queue them as any other, without a wait of the host. As
// slow as one thread: training on the CPU has LibTorch's.
const StepKernels& HostStepKernels();

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_HOST_STEP_KERNELS_H_
