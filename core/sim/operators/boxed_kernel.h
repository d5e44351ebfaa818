// Boxed kernel: any operator on simulated devices, by its CPU kernel.

#ifndef TANDEM_CORE_SIM_OPERATORS_BOXED_KERNEL_H_
#define TANDEM_CORE_SIM_OPERATORS_BOXED_KERNEL_H_

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

namespace tandem {
namespace sim {

struct OperatorTraits;

// Checks that the arguments are on one device (as CUDA's kernels do; CPU
// scalars and, for indexing, CPU indices may stand beside them), calls the CPU
// kernel on the same memory, and gives its results to the device.
class BoxedKernel final : public c10::OperatorKernel {
 public:
  // For one operator.
  explicit BoxedKernel(const c10::OperatorHandle& op);
  // For any: looks at the operator in each call.
  BoxedKernel();
  ~BoxedKernel() override;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  std::unique_ptr<const OperatorTraits> traits_;
};

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_OPERATORS_BOXED_KERNEL_H_
