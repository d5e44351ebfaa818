// Operator registration: makes LibTorch's operators run on simulated devices.

#ifndef TANDEM_CORE_SIM_OPERATORS_REGISTER_OPERATORS_H_
#define TANDEM_CORE_SIM_OPERATORS_REGISTER_OPERATORS_H_

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

namespace tandem {
namespace sim {

// Kernels registered for as long as the process lives.

// A registration ends with its library: these are kept. A new one at each call,
// for the kernels of `name_space` ("_": the fallback of all) at `key`.
torch::Library& NewLibrary(const char* name_space, c10::DispatchKey key);

// Registers BoxedKernel for every operator of LibTorch's that has a CPU kernel,
// for c10d's collectives, and for whatever has no other kernel; and what
// differs (special_operators.cc). Once; stays until the process ends.
void RegisterOperators();

// Operators that BoxedKernel would get wrong; recurrent networks, whose
// gradients LibTorch takes apart differently for devices that it does not know;
// and which operators autocast casts (CUDA's lists); and what there is none of:
// sparse, quantized and nested tensors.
void RegisterSpecialOperators();
void RegisterRecurrentOperators();
void RegisterAutocast();
void RegisterRefusals();

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_OPERATORS_REGISTER_OPERATORS_H_
