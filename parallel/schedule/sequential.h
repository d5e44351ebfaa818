// Sequential schedule: naive model parallelism, one device at work at a time.

#ifndef TANDEM_PARALLEL_SCHEDULE_SEQUENTIAL_H_
#define TANDEM_PARALLEL_SCHEDULE_SEQUENTIAL_H_

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_SEQUENTIAL_H_
