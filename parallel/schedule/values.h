// Schedule values: named ones, for ranks to compare
// (core/agreement/agreement.h).

#ifndef TANDEM_PARALLEL_SCHEDULE_VALUES_H_
#define TANDEM_PARALLEL_SCHEDULE_VALUES_H_

#include "core/agreement/agreement.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// What decides about the run, all but the name: "stages", "microbatches", and
// for each device its stages and actions, "device 1": "stages 1 3; 1F0 3F0
// ...".
NamedValues ScheduleValues(const Schedule& schedule);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_VALUES_H_
