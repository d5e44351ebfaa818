// Asynchronous mode: an operator's call is put into a stream's queue, and its
// results are tensors whose values come later.

#ifndef TANDEM_CORE_SIM_CALLS_QUEUED_CALL_H_
#define TANDEM_CORE_SIM_CALLS_QUEUED_CALL_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>

#include "core/sim/calls/call_signature.h"
#include "core/sim/calls/operator_traits.h"

namespace tandem {
namespace sim {

// Call results: an operator's results, made before their values are there.

// Geometries of the results of a call that has run; nothing if they cannot be
// foretold.
std::optional<Geometries> ResultGeometries(const torch::jit::Stack& arguments,
                                           const torch::jit::Stack& results);

// Tensors on the device, whose values come later.
torch::jit::Stack MakeResults(const Geometries& geometries,
                              const torch::jit::Stack& arguments,
                              int8_t device);

// Queues the call on the current stream of its device. What must know values
// first runs at once, after all that the stream has queued: operators whose
// results are numbers or have shapes that depend on values, collectives, and
// the first call for a combination of shapes, which finds out the results'
// shapes (LibTorch knows few of them without running the operator).
//
// A copy between devices waits for both streams, and both wait for it, as on
// CUDA; one from or to the host waits for its end unless it is non_blocking and
// the host's memory is pinned.
void CallQueued(const c10::OperatorHandle& op, const OperatorTraits& traits,
                torch::jit::Stack* stack);

// Runs the call at once.
void CallNow(const c10::OperatorHandle& op, const OperatorTraits& traits,
             torch::jit::Stack* stack);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_CALLS_QUEUED_CALL_H_
