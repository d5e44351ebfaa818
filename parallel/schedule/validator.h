// Schedule validator: proves that a schedule can be run, complete, in order,
// free of deadlock, and within its memory.

#ifndef TANDEM_PARALLEL_SCHEDULE_VALIDATOR_H_
#define TANDEM_PARALLEL_SCHEDULE_VALIDATOR_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

struct ScheduleLimits {
  // Messages that a channel between two stages of different devices holds
  // before the sender of the next one waits. 0: a sender waits until the
  // receiver takes the message.
  int channel_capacity = 1;
  // Forwards of a device whose backward is not done (with a backward in two
  // parts: the second), at most; 0: any number.
  int most_activations = 0;
  // Stages whose parameters a device has at a time, at most, where these are
  // gathered by actions (unshards.h); 0: any number.
  int max_unsharded_stages = 0;
};

// What a device's activations and parameters come to.
struct ScheduleFacts {
  std::vector<int> peak_activations;  // by device
  // By device, of how many stages; 0: the schedule does not say.
  std::vector<int> peak_unsharded;
};

// InvalidArgument says what is wrong: the device, the action, and what it waits
// for. What passes always finishes, whatever the actions' durations: each
// action waits for others alone that are known to end.
//
// Checked are: each stage is on one device; each stage has one forward of each
// microbatch and one backward, whole or in both parts, on its device; an action
// comes after what it needs: a forward after that of the stage before, a
// backward after the same stage's forward and the backward of the stage behind,
// the weights' part after the input's; channels; memory; what computes between
// the actions that gather and free its stage's parameters, if there are any.
absl::StatusOr<ScheduleFacts> ValidateSchedule(
    const Schedule& schedule, const ScheduleLimits& limits = {});

// The least channel capacity with which a schedule that is right otherwise
// ends: 1 for 1F1B, whose neighbours would wait for each other with 0.
// InvalidArgument for one that never does.
absl::StatusOr<int> LeastChannelCapacity(const Schedule& schedule);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_VALIDATOR_H_
