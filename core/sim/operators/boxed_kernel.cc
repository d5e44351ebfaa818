#include "core/sim/operators/boxed_kernel.h"

#include <mutex>
#include <unordered_map>

#include "core/sim/calls/operator_traits.h"
#include "core/sim/calls/queued_call.h"
#include "core/sim/imagined/imagined_call.h"
#include "core/sim/imagined/imagined_memory.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

// Looked at once, and kept: what is queued needs it.
const OperatorTraits& TraitsOf(const c10::OperatorHandle& op) {
  static auto* mutex = new std::mutex;
  static auto* all =
      new std::unordered_map<c10::OperatorName,
                             std::unique_ptr<const OperatorTraits>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<const OperatorTraits>& traits = (*all)[op.operator_name()];
  if (traits == nullptr) traits = std::make_unique<OperatorTraits>(op);
  return *traits;
}

void Call(const c10::OperatorHandle& op, const OperatorTraits& traits,
          torch::jit::Stack* stack) {
  if (MemoryIsImagined()) return CallImagined(op, traits, stack);
  if (IsAsynchronous()) return CallQueued(op, traits, stack);
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
  // Without: of an operator that was not there when devices were made
  // (core/fused's).
  Call(op, traits_ == nullptr ? TraitsOf(op) : *traits_, stack);
}

}  // namespace sim
}  // namespace tandem
