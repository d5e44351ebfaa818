// Reducer times: when a backward computed, and when its gradients travelled;
// and moments, which are times before the devices have come there.

#ifndef TANDEM_PARALLEL_DDP_REDUCER_MOMENTS_H_
#define TANDEM_PARALLEL_DDP_REDUCER_MOMENTS_H_

#include <chrono>
#include <memory>
#include <vector>

#include "core/comm/pending_collective.h"
#include "core/device/device_moment.h"

namespace tandem {

// When the parts of the last averaged backward happened.
struct ReducerTimes {
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point started;
    Clock::time_point ended;
  };
  Clock::time_point began;
  Clock::time_point gradients_ready;  // all of them: backward has ended
  Clock::time_point ended;            // and all are averaged
  std::vector<Span> buckets;
};

// The same, as devices will tell it.
struct ReducerMoments {
  struct Bucket {
    DeviceMoment started;
    // When whoever waited for it went on, and the collectives that may know
    // that they had ended before. Null: a hook's, which do not tell.
    DeviceMoment awaited;
    std::shared_ptr<const std::vector<PendingCollective>> sums;
  };
  DeviceMoment began;
  DeviceMoment gradients_ready;
  DeviceMoment ended;
  std::vector<Bucket> buckets;
};

// Have all of them come? Never waits.
bool HaveCome(const ReducerMoments& moments);
// Waits for all of them.
ReducerTimes AwaitTimes(const ReducerMoments& moments);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REDUCER_MOMENTS_H_
