#include "core/sim/operators/boxed_kernel.h"

#include "core/sim/calls/operator_traits.h"
#include "core/sim/calls/queued_call.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

// Of an operator that nobody has looked at before: behind what its stream has.
void CallAny(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OperatorTraits traits(op);
  if (IsAsynchronous()) return CallDrained(op, traits, stack);
  CallNow(op, traits, stack);
}

}  // namespace

BoxedKernel::BoxedKernel(const c10::OperatorHandle& op)
    : traits_(std::make_unique<OperatorTraits>(op)) {}

BoxedKernel::BoxedKernel() = default;
BoxedKernel::~BoxedKernel() = default;

void BoxedKernel::operator()(const c10::OperatorHandle& op,
                             c10::DispatchKeySet /*keys*/,
                             torch::jit::Stack* stack) {
  if (traits_ == nullptr) return CallAny(op, stack);
  if (IsAsynchronous()) return CallQueued(op, *traits_, stack);
  CallNow(op, *traits_, stack);
}

}  // namespace sim
}  // namespace tandem
