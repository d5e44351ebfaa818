// Which step kernels a type of device has.

#ifndef TANDEM_CORE_CUDA_STEP_KERNELS_OF_H_
#define TANDEM_CORE_CUDA_STEP_KERNELS_OF_H_

#include <c10/core/DeviceType.h>

#include "core/cuda/step_kernels.h"

namespace tandem {

// Those of a type of device: CUDA's in a program built with --config=cuda, and
// what was registered; null: there are none. Thread-safe.
const StepKernels* StepKernelsOf(c10::DeviceType type);

// What StepKernelsOf says from now on; null: none. `kernels` must stay. For
// tests, which have the host's (host_step_kernels.h) stand in.
void RegisterStepKernels(c10::DeviceType type, const StepKernels* kernels);

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_STEP_KERNELS_OF_H_
