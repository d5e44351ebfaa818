// Kernels registered for as long as the process lives.

#ifndef TANDEM_CORE_SIM_OPERATORS_LIBRARIES_H_
#define TANDEM_CORE_SIM_OPERATORS_LIBRARIES_H_

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

namespace tandem {
namespace sim {

// A registration ends with its library: these are kept. A new one at each call,
// for the kernels of `name_space` ("_": the fallback of all) at `key`.
torch::Library& NewLibrary(const char* name_space, c10::DispatchKey key);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_OPERATORS_LIBRARIES_H_
