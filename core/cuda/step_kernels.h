// Step kernels: what a fused optimizer step over flat buffers needs of a kind
// of device, so that unscaling, the finite check, clipping and the update are
// decided there and the host does not wait.

#ifndef TANDEM_CORE_CUDA_STEP_KERNELS_H_
#define TANDEM_CORE_CUDA_STEP_KERNELS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "core/cuda/optimizer_elements.h"

namespace tandem {

// What of a step is another one in each: learning rate, and for Adam
// bias_correction1 and bias_correction2_root.
constexpr int kStepNumbers = 3;
using KernelNumbers = std::array<float, kStepNumbers>;

// Of one length, float32, contiguous, without overlap, on one device, and
// beginning at multiples of 16 bytes.
struct StepTensors {
  at::Tensor values;
  at::Tensor grads;   // left as they are
  at::Tensor first;   // momentum buffer or exp_avg; undefined: none
  at::Tensor second;  // exp_avg_sq; undefined: none
  // KernelNumbers as a tensor, read on the device in the place of the step's
  // (which a graph would repeat); undefined: the step's.
  at::Tensor numbers = {};
};

// Thread-safe. Work goes to the calling thread's current stream. What they
// throw are LibTorch's exceptions.
class StepKernels {
 public:
  virtual ~StepKernels() = default;

  // What a step is to multiply these gradients by, all of them together: a
  // GradientFactor as bytes, on their device. At least one; as StepTensors'.
  virtual at::Tensor FindFactor(const std::vector<at::Tensor>& grads,
                                const FactorOptions& options) const = 0;

  // One step of all elements, or none where the factor says so.
  virtual void Step(const StepTensors& tensors, const SgdStep& step,
                    const at::Tensor& factor) const = 0;
  virtual void Step(const StepTensors& tensors, const AdamStep& step,
                    const at::Tensor& factor) const = 0;
};

// Of FindFactor, on the host: waits for the device.
GradientFactor ReadFactor(const at::Tensor& factor);

}  // namespace tandem

#endif  // TANDEM_CORE_CUDA_STEP_KERNELS_H_
