// Random numbers of the simulated devices.

#ifndef TANDEM_CORE_SIM_STREAMS_GENERATOR_H_
#define TANDEM_CORE_SIM_STREAMS_GENERATOR_H_

#include <ATen/core/Generator.h>

#include <cstdint>

namespace tandem {
namespace sim {

// A generator for the device, seeded as LibTorch's CPU generator is by default.
// The numbers are those of a CPU generator in the same state.
at::Generator NewGenerator(int8_t device);

// The device's own; torch::manual_seed seeds it. Two streams that draw from one
// at once get numbers in any order, as on a GPU.
const at::Generator& DefaultGenerator(int8_t device);

// The CPU generator inside of a simulated device's; c10::Error for another
// device's generator.
at::Generator HostGenerator(const at::Generator& generator, int8_t device);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_STREAMS_GENERATOR_H_
