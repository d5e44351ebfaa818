// Overlap of communication and computation: how much of the all-reduces a
// pipeline's own work hides.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_OVERLAP_TIMES_H_
#define TANDEM_TOOLS_BENCH_MEASURE_OVERLAP_TIMES_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "core/instrument/trace.h"

namespace tandem {

// In milliseconds of one clock.
struct TimeSpan {
  double begin = 0;
  double end = 0;
};

// How long at least one of the spans lasts.
double Covered(std::vector<TimeSpan> spans);
// How long at least one of each list does.
double CoveredByBoth(const std::vector<TimeSpan>& some,
                     const std::vector<TimeSpan>& others);

// What a rank answers of one step: {"all_reduces": [[begin, end] of each
// bucket], "backwards": [[begin, end] of each action of its devices]}, in
// milliseconds of the clock that all ranks of a host share.
nlohmann::json TraceSpans(const std::vector<TraceEvent>& events);

struct OverlapTimes {
  double all_reduce_ms =
      0;  // of a step: some bucket of a replica was under way
  // The time in which some device of the replica computed backward: the
  // bucket's own stage its last, or an earlier stage in the cool-down.
  double hidden_ms = 0;

  double share() const {
    return all_reduce_ms > 0 ? hidden_ms / all_reduce_ms : 0;
  }
};

// Means over replicas and steps, from {"steps": [TraceSpans, ...]} of each
// rank, of which every `pipe` in turn are a replica.
OverlapTimes AllReduceOverlap(const std::vector<nlohmann::json>& answers,
                              int pipe);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_OVERLAP_TIMES_H_
