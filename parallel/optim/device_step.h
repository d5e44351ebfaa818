// Device steps: optimizer steps whose clipping and skipping are decided on the
// device (core/cuda/step_kernels.h), so that the host waits for no norm.

#ifndef TANDEM_PARALLEL_OPTIM_DEVICE_STEP_H_
#define TANDEM_PARALLEL_OPTIM_DEVICE_STEP_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "core/cuda/step_kernels.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// The kernels by which these buffers can be stepped, whose optimizers have some
// or not (Optimizer::has_kernels). FailedPrecondition, with the reason, where
// they are not all float32 and on one device that has kernels. The one place
// where this is decided.
absl::StatusOr<const StepKernels*> DeviceStepKernels(
    const FlatBufferList& buffers, bool has_kernels);

// What a step is to multiply all gradients of `buffers` by, on their device.
// Undefined where there are no gradients. Throws c10::Error.
at::Tensor GradientFactorOf(const FlatBufferList& buffers,
                            const StepKernels& kernels,
                            const FactorOptions& options);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_DEVICE_STEP_H_
