// A pipeline's schedule as data: what each device does, in which order. Pure
// functions make schedules (schedules.h), a validator proves them
// (schedule_validator.h), one executor runs them.

#ifndef TANDEM_PARALLEL_SCHEDULE_SCHEDULE_H_
#define TANDEM_PARALLEL_SCHEDULE_SCHEDULE_H_

#include <string>
#include <vector>

namespace tandem {

enum class ActionKind {
  kForward,
  kBackward,        // gradients of input and weights, as autograd does it
  kBackwardInput,   // gradients of the input alone
  kBackwardWeight,  // those of the weights, which kBackwardInput left
};

// One stage's work on one microbatch.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int microbatch = 0;

  bool operator==(const Action& other) const {
    return kind == other.kind && stage == other.stage &&
           microbatch == other.microbatch;
  }
};

// Stages are numbered along the model, from 0; a device holds one or several.
// What a stage sends to one on another device goes when it is ready, and what a
// stage needs is waited for, so neither is written down.
struct Schedule {
  std::string name;
  int stages = 1;
  int microbatches = 1;
  // The stages of each device, in any order.
  std::vector<std::vector<int>> stages_of;
  // What each device does.
  std::vector<std::vector<Action>> actions;

  int devices() const { return static_cast<int>(actions.size()); }
};

// The device that holds the stage; -1: none does.
int DeviceOfStage(const Schedule& schedule, int stage);

// Does it take backwards apart?
bool SplitsBackward(const Schedule& schedule);

// In which order microbatches give gradients, in every stage: those of inputs,
// and those of weights.
enum class GradientsCome { kAscending, kDescending, kInNoOrder };
GradientsCome OrderOfGradients(const Schedule& schedule);

// "F2", "B0", "I1", "W3"; where devices have other stages than that of their
// own number, the stage stands before it: "4F2".
std::string ToString(const Action& action, bool with_stage);

// A line for each device, actions separated by spaces; what ParseSchedule
// reads.
std::string ToString(const Schedule& schedule);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_SCHEDULE_H_
