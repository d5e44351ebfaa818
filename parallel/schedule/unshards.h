// Unshard and reshard actions of a schedule: when a device has the parameters
// of a stage that replicas share (UNSHARD and RESHARD of
// torch.distributed.pipelining).

#ifndef TANDEM_PARALLEL_SCHEDULE_UNSHARDS_H_
#define TANDEM_PARALLEL_SCHEDULE_UNSHARDS_H_

#include <vector>

#include "absl/status/status.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// Whether the schedule has such actions.
bool HasUnshards(const Schedule& schedule);

// The same schedule with such actions: before each action a device has the
// parameters of the stages that it computes next, of `most` at most (0: of all
// its stages), and frees all others, to gather them again when they come. What
// is gathered for later actions comes while earlier ones compute. A schedule
// that has such actions stays as it is.
Schedule WithUnshards(Schedule schedule, int most);

// By device, of how many stages it has the parameters at a time, at most.
// InvalidArgument names the device, the action, and what is wrong: an action
// that computes with parameters that are not there, a stage that is gathered
// twice, freed without having been, or never freed, more than `most` at a time
// (0: any number). A schedule without such actions is right, and has 0 of each.
absl::Status CheckUnshards(const Schedule& schedule, int most,
                           std::vector<int>* peaks);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_UNSHARDS_H_
