// Simulated devices for tests of your own:
//
//   const std::vector<c10::Device> devices = tandem::SimDevices(2);
//   model->to(devices[1]);
//
// docs/rehearsal.md.

#ifndef TANDEM_CORE_SIM_TESTING_H_
#define TANDEM_CORE_SIM_TESTING_H_

#include <c10/core/Device.h>

#include <vector>

#include "core/sim/sim.h"

namespace tandem {

// sim:0 to sim:(n - 1), 16 at most, in a process that has had none: EnableSim
// with the options of SimOptionsForTests. Ends the process where that fails.
std::vector<c10::Device> SimDevices(int n);

// 16 devices; asynchronous ones if $TANDEM_SIM_ASYNC is set, to the most
// microseconds by which each piece of work is held up ("0" for none), and
// $TANDEM_SIM_SEED for the delays:
//
//   bazel test --test_env=TANDEM_SIM_ASYNC=200 //my:test
SimOptions SimOptionsForTests();

// Sets a device's memory for as long as this object lives.
class SimMemoryCap {
 public:
  SimMemoryCap(c10::Device device, int64_t bytes);
  ~SimMemoryCap();
  SimMemoryCap(const SimMemoryCap&) = delete;
  SimMemoryCap& operator=(const SimMemoryCap&) = delete;

 private:
  const c10::Device device_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SIM_TESTING_H_
