// Call signature: what the shapes of an operator's results depend on, and those
// shapes.

#ifndef TANDEM_CORE_SIM_CALLS_CALL_SIGNATURE_H_
#define TANDEM_CORE_SIM_CALLS_CALL_SIGNATURE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/sim/calls/operator_traits.h"

namespace tandem {
namespace sim {

// The operator, its arguments' shapes, strides and dtypes, and all plain values
// but real numbers that change no shape, as bytes; nothing if there is an
// argument of another kind.
std::optional<std::string> CallSignature(const OperatorTraits& traits,
                                         const torch::jit::Stack& arguments);

// Geometry of one result.
struct Geometry {
  bool defined = false;
  // Is it this one of the operator's arguments (index)? -1: it is new.
  int argument = -1;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};
using Geometries = std::vector<Geometry>;

// The geometries that an earlier call of this signature had; null if there was
// none. Thread-safe; what is remembered stays, but beyond 65,536 signatures
// nothing more is.
const Geometries* Remembered(const std::string& signature);
void Remember(const std::string& signature, Geometries results);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_CALLS_CALL_SIGNATURE_H_
