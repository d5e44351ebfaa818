#include "core/device/machine_load.h"

#include <algorithm>
#include <fstream>

namespace tandem {

// "1.82 2.24 2.43 3/195 9663": the fourth has who is asking among its three.
MachineLoad ReadMachineLoad(const std::string& loadavg) {
  std::ifstream file(loadavg);
  double last_minute = 0;
  double ignored = 0;
  int running = 0;
  if (!(file >> last_minute >> ignored >> ignored >> running)) return {};
  return {last_minute, std::max(0, running - 1)};
}

bool IsBusy(const MachineLoad& load, int cores) {
  return load.average > cores / 2.0 && load.others_now >= (cores + 1) / 2;
}

}  // namespace tandem
