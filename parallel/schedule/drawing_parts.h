// What pictures of a schedule have in common: names, labels, times on an axis.

#ifndef TANDEM_PARALLEL_SCHEDULE_DRAWING_PARTS_H_
#define TANDEM_PARALLEL_SCHEDULE_DRAWING_PARTS_H_

#include <string>
#include <vector>

#include "parallel/schedule/prediction.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// "backward, input".
const char* KindName(ActionKind kind);

// Those that the prediction has, in the order of a legend.
std::vector<ActionKind> KindsOf(const SchedulePrediction& prediction);

bool HasSeveralStages(const std::vector<TimedAction>& device);

// What a picture writes on an action of `device`.
std::string ActionLabel(const std::vector<TimedAction>& device,
                        const TimedAction& timed);

// The times that an axis names: multiples of 1, 2 or 5 times a power of ten, so
// that there are at most ten behind 0.
std::vector<double> AxisTicks(double step);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_DRAWING_PARTS_H_
