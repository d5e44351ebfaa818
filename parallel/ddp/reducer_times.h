// Reducer times: when a backward computed, and when its gradients travelled.

#ifndef TANDEM_PARALLEL_DDP_REDUCER_TIMES_H_
#define TANDEM_PARALLEL_DDP_REDUCER_TIMES_H_

#include <chrono>
#include <vector>

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REDUCER_TIMES_H_
