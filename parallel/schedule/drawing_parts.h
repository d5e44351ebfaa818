// What pictures of a schedule have in common: names and labels.

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_DRAWING_PARTS_H_
