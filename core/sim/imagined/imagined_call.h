// Imagined mode: an operator's call without its values. Its results are
// tensors of the right shapes in blocks without memory, which are booked as on
// a simulated device that computes.

#ifndef TANDEM_CORE_SIM_IMAGINED_IMAGINED_CALL_H_
#define TANDEM_CORE_SIM_IMAGINED_IMAGINED_CALL_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "core/sim/calls/operator_traits.h"

namespace tandem {
namespace sim {

// Takes and gives back the memory that the CPU's kernel would (call_outcome.h),
// and counts the call's work (meters.h). What the host is given, by a copy
// or as a number, are zeros. c10::Error as on a device that computes: for
// tensors of several devices, memory that does not suffice, shapes that do not
// go together.
void CallImagined(const c10::OperatorHandle& op, const OperatorTraits& traits,
                  torch::jit::Stack* stack);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_IMAGINED_CALL_H_
