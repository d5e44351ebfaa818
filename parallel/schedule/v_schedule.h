// V schedule: what a device of zb_v does.

#ifndef TANDEM_PARALLEL_SCHEDULE_V_SCHEDULE_H_
#define TANDEM_PARALLEL_SCHEDULE_V_SCHEDULE_H_

#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/schedules.h"

namespace tandem {

// A part of //parallel/schedule:schedules; see ZeroBubbleV there.
std::vector<Action> ActionsOfV(int device, const ScheduleShape& shape);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_V_SCHEDULE_H_
