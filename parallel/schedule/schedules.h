// Pipeline schedules of the literature (GPipe, 1F1B, interleaved, zero bubble),
// as pure functions.
//
// Sequential schedule: naive model parallelism, one device at work at a time.

#ifndef TANDEM_PARALLEL_SCHEDULE_SCHEDULES_H_
#define TANDEM_PARALLEL_SCHEDULE_SCHEDULES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

inline constexpr absl::string_view kSequential = "sequential";

// A stage on each device; a microbatch goes forward and backward through all of
// them before the next one begins, so that one is held at most. On one device
// that is gradient accumulation. Its name is kSequential. InvalidArgument
// unless both are at least 1.
absl::StatusOr<Schedule> SequentialSchedule(int devices, int microbatches);

struct ScheduleShape {
  int devices = 1;
  int chunks = 1;  // stages a device
  int microbatches = 1;
};

// All forwards, then all backwards in reverse order (GPipe, 1811.06965, figure
// 2c). Every microbatch's activations are alive at once. One chunk.
absl::StatusOr<Schedule> GPipe(const ScheduleShape& shape);

// One forward, one backward (PipeDream-Flush; 2104.04473, figure 3, top): of a
// device's S - s stages to the end, as many microbatches are alive at most. One
// chunk.
absl::StatusOr<Schedule> OneFOneB(const ScheduleShape& shape);

// 1F1B over several chunks a device, stage c * devices + d on device d
// (Megatron; 2104.04473, figure 4): divides the bubble by the chunks.
// Microbatches must be a multiple of the devices.
absl::StatusOr<Schedule> InterleavedOneFOneB(const ScheduleShape& shape);

// Chunks as above, breadth first (2211.05953): all forwards of one chunk, then
// of the next, and back. Any number of microbatches.
absl::StatusOr<Schedule> LoopedBfs(const ScheduleShape& shape);

// 1F1B with backward in two parts, of which that of the weights fills what was
// bubble; at most as many microbatches alive as 1F1B's first device has
// (2401.10241, ZB-H1, figure 3). One chunk.
absl::StatusOr<Schedule> ZeroBubbleH1(const ScheduleShape& shape);

// Two chunks a device, stages d and 2 * devices - 1 - d on device d, so that
// the first device has the last stage, too (2401.10241, ZB-V, section 6): no
// bubble but at the very ends when all parts take as long, in 1F1B's memory.
absl::StatusOr<Schedule> ZeroBubbleV(const ScheduleShape& shape);

// By name: "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_v".
// InvalidArgument for others, and for shapes that the schedule does not take.
absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape);
std::vector<std::string> ScheduleNames();

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_SCHEDULES_H_
