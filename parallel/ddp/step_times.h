// Step times of DistributedDataParallel: from moments of its device to its
// logging data.

#ifndef TANDEM_PARALLEL_DDP_STEP_TIMES_H_
#define TANDEM_PARALLEL_DDP_STEP_TIMES_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <deque>

#include "core/device/device_moment.h"
#include "parallel/ddp/logging.h"
#include "parallel/ddp/reducer_moments.h"

namespace tandem {

// A step is noted when its device has come to its end, so that nobody waits
// for it. Not thread-safe.
class StepTimes {
 public:
  void BeginForward(c10::Device device) { began_ = DeviceMoment::Now(device); }
  void EndForward(c10::Device device) { ended_ = DeviceMoment::Now(device); }
  // `step`, from 1, has been averaged.
  void EndStep(int64_t step, const ReducerMoments& reducer);

  // Adds those that have come, or, waiting, all.
  void Note(bool waits, DdpLoggingData* data);

 private:
  struct Step {
    int64_t number;
    DeviceMoment forward_began;
    DeviceMoment forward_ended;
    ReducerMoments reducer;
  };

  DeviceMoment began_;
  DeviceMoment ended_;
  std::deque<Step> steps_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_STEP_TIMES_H_
