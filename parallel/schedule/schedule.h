// Pipeline schedule as data: what each device does, in which order. Pure
// functions make schedules (schedules.h), a validator proves them
// (validator.h), one executor runs them.

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
  // Parameters of the stage that replicas share are gathered, and freed
  // (UNSHARD and RESHARD of torch.distributed.pipelining): no microbatch's.
  kUnshard,
  kReshard,
};

// The action is one on a microbatch, not on parameters.
inline bool Computes(ActionKind kind) {
  return kind != ActionKind::kUnshard && kind != ActionKind::kReshard;
}

inline bool IsForward(ActionKind kind) { return kind == ActionKind::kForward; }
inline bool GivesInputGradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}
// The microbatch's gradients of weights are then complete, and nothing of its
// forward is needed any more.
inline bool EndsBackward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight;
}

// One stage's work on one microbatch, or on its parameters.
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
// By stage, for who asks for many.
std::vector<int> DevicesOfStages(const Schedule& schedule);

// What each stage computes of the first so many microbatches, in its device's
// order. Requires that there are no others than the schedule's stages.
std::vector<std::vector<Action>> ActionsByStage(const Schedule& schedule,
                                                int microbatches);

// By stage, the last action that adds to its gradients, of so many
// microbatches; without any, meaningless.
std::vector<Action> LastGradients(const Schedule& schedule, int microbatches);

// What a device does when there is no backward: chunk by chunk, along the
// model, so that each stage waits for earlier ones alone, and from the first
// microbatch to the last.
std::vector<Action> ForwardActions(const Schedule& schedule, int device);

// Does it take backwards apart?
bool SplitsBackward(const Schedule& schedule);

// In which order microbatches give gradients, in every stage: those of inputs,
// and those of weights.
enum class GradientsCome { kAscending, kDescending, kInNoOrder };
GradientsCome OrderOfGradients(const Schedule& schedule);

// "F2", "B0", "I1", "W3", "U", "R"; where devices have other stages than that
// of their own number, the stage stands before it: "4F2", "4U".
std::string ToString(const Action& action, bool with_stage);

// A line for each device, actions separated by spaces; what ParseSchedule
// reads.
std::string ToString(const Schedule& schedule);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SCHEDULE_SCHEDULE_H_
