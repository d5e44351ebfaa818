#include "core/sim/boxed_kernel.h"

#include "core/sim/operator_call.h"
#include "core/sim/operator_traits.h"

namespace tandem {
namespace sim {
namespace {

void RunNow(const c10::OperatorHandle& op, const OperatorTraits& traits,
            torch::jit::Stack* stack) {
  OperatorCall call(op, traits);
  call.TakeArguments(*stack);
  call.RunKernel(*stack);
  call.GiveResults(*stack);
}

}  // namespace

BoxedKernel::BoxedKernel(const c10::OperatorHandle& op)
    : traits_(std::make_unique<OperatorTraits>(op)) {}

BoxedKernel::BoxedKernel() = default;
BoxedKernel::~BoxedKernel() = default;

void BoxedKernel::operator()(const c10::OperatorHandle& op,
                             c10::DispatchKeySet /*keys*/,
                             torch::jit::Stack* stack) {
  if (traits_ != nullptr) return RunNow(op, *traits_, stack);
  RunNow(op, OperatorTraits(op), stack);
}

}  // namespace sim
}  // namespace tandem
