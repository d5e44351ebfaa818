// Machine load: how busy this machine's cores are, whoever uses them.

#ifndef TANDEM_CORE_DEVICE_MACHINE_LOAD_H_
#define TANDEM_CORE_DEVICE_MACHINE_LOAD_H_

#include <string>

namespace tandem {

struct MachineLoad {
  // Threads that ran, or waited for a core or a disk, on average over the last
  // minute.
  double average = 0;
  // Threads that run or wait for a core now, without the one that asks.
  int others_now = 0;
};

// Zeros where the kernel does not say.
MachineLoad ReadMachineLoad(const std::string& loadavg = "/proc/loadavg");

// Whether programs compete for the cores: others use more than half of them,
// now and for a while.
bool IsBusy(const MachineLoad& load, int cores);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_MACHINE_LOAD_H_
