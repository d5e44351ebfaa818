// Host wait meter: how often the host waits for asynchronous simulated devices
// within training steps.

#ifndef TANDEM_TOOLS_TRAINER_HOST_WAIT_METER_H_
#define TANDEM_TOOLS_TRAINER_HOST_WAIT_METER_H_

#include <cstdint>
#include <map>
#include <string>

#include "core/sim/streams/host_waits.h"

namespace tandem {

// Of this process. Not thread-safe.
class HostWaitMeter {
 public:
  void BeginStep();
  // When the step has been submitted.
  void EndStep();

  int64_t steps() const { return steps_; }
  // By what they were for, a step; but for the first steps, in which there is
  // more to wait for (buckets are put in order). Empty: there were none.
  std::map<std::string, double> waits() const;

 private:
  int64_t begun_ = 0;
  int64_t steps_ = 0;
  sim::HostWaits before_;
  sim::HostWaits all_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_HOST_WAIT_METER_H_
