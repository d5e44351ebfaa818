// Call results: an operator's results, made before their values are there.

#ifndef TANDEM_CORE_SIM_CALLS_CALL_RESULTS_H_
#define TANDEM_CORE_SIM_CALLS_CALL_RESULTS_H_

#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>

#include "core/sim/calls/call_signature.h"

namespace tandem {
namespace sim {

// Of the results of a call that has run; nothing if they cannot be foretold.
std::optional<Geometries> GeometriesOf(const torch::jit::Stack& arguments,
                                       const torch::jit::Stack& results);

// Tensors on the device, whose values come later.
torch::jit::Stack MakeResults(const Geometries& geometries,
                              const torch::jit::Stack& arguments,
                              int8_t device);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_CALLS_CALL_RESULTS_H_
