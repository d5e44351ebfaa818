#include "parallel/schedule/schedules.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// The actions of one device of ZB-V, counted chunk by chunk. Past the last
// microbatch nothing is written.
class VWriter {
 public:
  VWriter(int device, const ScheduleShape& shape)
      : stages_{device, 2 * shape.devices - 1 - device},
        microbatches_(shape.microbatches) {}

  void Forward(int chunk) {
    Write(ActionKind::kForward, chunk, forwards_[chunk]++);
  }
  void Input(int chunk) {
    Write(ActionKind::kBackwardInput, chunk, inputs_[chunk]++);
  }
  void Weight(int chunk) {
    Write(ActionKind::kBackwardWeight, chunk, weights_[chunk]++);
  }
  void Both(int chunk) {
    Input(chunk);
    Weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk]; }
  int inputs(int chunk) const { return inputs_[chunk]; }
  int weights(int chunk) const { return weights_[chunk]; }
  std::vector<Action> Take() { return std::move(actions_); }

 private:
  void Write(ActionKind kind, int chunk, int microbatch) {
    if (microbatch >= microbatches_) return;
    actions_.push_back({kind, stages_[chunk], microbatch});
  }

  const int stages_[2];
  const int microbatches_;
  int forwards_[2] = {0, 0};
  int inputs_[2] = {0, 0};
  int weights_[2] = {0, 0};
  std::vector<Action> actions_;
};

// What a device of zb_v does; see ZeroBubbleV.
std::vector<Action> ActionsOfV(int device, const ScheduleShape& shape) {
  VWriter write(device, shape);
  const int count = std::max(2 * shape.devices - 1, shape.microbatches);
  const int behind = shape.devices - device;
  for (int i = 0; i < 2 * behind - 1; ++i) write.Forward(0);
  for (int i = 0; i < device; ++i) {
    write.Forward(1);
    write.Forward(0);
  }
  for (int i = 0; i < behind; ++i) {
    write.Forward(1);
    write.Both(1);
  }
  while (write.forwards(1) < write.forwards(0) || write.forwards(0) < count) {
    if (write.forwards(0) < count) write.Forward(0);
    write.Both(0);
    write.Forward(1);
    write.Both(1);
  }
  for (int i = 0; i < device; ++i) {
    write.Input(0);
    write.Input(1);
  }
  for (int i = 0; i < behind; ++i) write.Both(0);
  for (int chunk : {1, 0}) {
    while (write.weights(chunk) < write.inputs(chunk)) write.Weight(chunk);
  }
  return write.Take();
}

constexpr ActionKind kForward = ActionKind::kForward;
constexpr ActionKind kBackward = ActionKind::kBackward;
constexpr ActionKind kInput = ActionKind::kBackwardInput;
constexpr ActionKind kWeight = ActionKind::kBackwardWeight;

// Forwards of all stages. With more, whoever simulates a schedule would take
// gigabytes.
constexpr int kMostForwards = 1 << 21;

absl::Status CheckShape(absl::string_view name, const ScheduleShape& shape,
                        int least_chunks, int most_chunks) {
  if (shape.devices < 1 || shape.chunks < 1 || shape.microbatches < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", name, ": ", shape.devices, " devices, ", shape.chunks,
        " chunks and ", shape.microbatches,
        " microbatches were given, but there is at least one of each"));
  }
  // Compared as doubles, which hold the product of any three.
  if (static_cast<double>(shape.devices) * shape.chunks * shape.microbatches >
      kMostForwards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", name, ": ", shape.microbatches, " microbatches on ",
        shape.devices, " devices of ", shape.chunks,
        " stage(s) are more than the ", kMostForwards,
        " forwards that a step may have: give fewer microbatches"));
  }
  if (shape.chunks >= least_chunks && shape.chunks <= most_chunks) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule ", name, " has ",
      least_chunks == most_chunks ? absl::StrCat(least_chunks)
                                  : absl::StrCat(least_chunks, " or more"),
      " stage(s) a device, but ", shape.chunks, " were asked for"));
}

Schedule Looped(absl::string_view name, const ScheduleShape& shape) {
  Schedule schedule;
  schedule.name = std::string(name);
  schedule.stages = shape.devices * shape.chunks;
  schedule.microbatches = shape.microbatches;
  schedule.stages_of.resize(shape.devices);
  schedule.actions.resize(shape.devices);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    schedule.stages_of[stage % shape.devices].push_back(stage);
  }
  return schedule;
}

// Megatron's order: microbatches go through a device in groups of as many as
// there are devices; a group takes all chunks before the next one begins.
struct Virtual {
  int chunk;
  int microbatch;
};
Virtual VirtualStage(int index, const ScheduleShape& shape) {
  const int group = shape.devices * shape.chunks;
  return {index % group / shape.devices,
          index / group * shape.devices + index % shape.devices};
}

struct Named {
  const char* name;
  absl::StatusOr<Schedule> (*make)(const ScheduleShape&);
};

constexpr Named kSchedules[] = {
    {"gpipe", &GPipe},
    {"1f1b", &OneFOneB},
    {"interleaved_1f1b", &InterleavedOneFOneB},
    {"looped_bfs", &LoopedBfs},
    {"zb_h1", &ZeroBubbleH1},
    {"zb_v", &ZeroBubbleV},
};

}  // namespace

absl::StatusOr<Schedule> SequentialSchedule(int devices, int microbatches) {
  if (devices < 1 || microbatches < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a schedule needs at least one device and one microbatch, but ",
        devices, " and ", microbatches, " were given"));
  }
  Schedule schedule;
  schedule.name = std::string(kSequential);
  schedule.stages = devices;
  schedule.microbatches = microbatches;
  schedule.actions.resize(static_cast<size_t>(devices));
  for (int device = 0; device < devices; ++device) {
    schedule.stages_of.push_back({device});
    auto& actions = schedule.actions[static_cast<size_t>(device)];
    for (int i = 0; i < microbatches; ++i) {
      actions.push_back({ActionKind::kForward, device, i});
      actions.push_back({ActionKind::kBackward, device, i});
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> GPipe(const ScheduleShape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckShape("gpipe", shape, 1, 1));
  Schedule schedule = Looped("gpipe", shape);
  for (int device = 0; device < shape.devices; ++device) {
    std::vector<Action>& actions = schedule.actions[device];
    for (int m = 0; m < shape.microbatches; ++m) {
      actions.push_back({kForward, device, m});
    }
    for (int m = shape.microbatches; m-- > 0;) {
      actions.push_back({kBackward, device, m});
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> OneFOneB(const ScheduleShape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckShape("1f1b", shape, 1, 1));
  Schedule schedule = Looped("1f1b", shape);
  for (int device = 0; device < shape.devices; ++device) {
    std::vector<Action>& actions = schedule.actions[device];
    int forward = 0;
    const int warm_up =
        std::min(shape.devices - 1 - device, shape.microbatches);
    while (forward < warm_up) actions.push_back({kForward, device, forward++});
    for (int m = 0; m < shape.microbatches; ++m) {
      if (forward < shape.microbatches) {
        actions.push_back({kForward, device, forward++});
      }
      actions.push_back({kBackward, device, m});
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> InterleavedOneFOneB(const ScheduleShape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckShape("interleaved_1f1b", shape, 1, 1 << 20));
  if (shape.microbatches % shape.devices != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule interleaved_1f1b: ", shape.microbatches,
                     " microbatches are no multiple of ", shape.devices,
                     " devices; give such a number, or take looped_bfs"));
  }
  Schedule schedule = Looped("interleaved_1f1b", shape);
  const int total = shape.microbatches * shape.chunks;
  for (int device = 0; device < shape.devices; ++device) {
    std::vector<Action>& actions = schedule.actions[device];
    const auto forward = [&](int index) {
      const Virtual at = VirtualStage(index, shape);
      actions.push_back(
          {kForward, at.chunk * shape.devices + device, at.microbatch});
    };
    const auto backward = [&](int index) {
      const Virtual at = VirtualStage(index, shape);
      const int chunk = shape.chunks - 1 - at.chunk;
      actions.push_back(
          {kBackward, chunk * shape.devices + device, at.microbatch});
    };
    // 1F1B with one chunk has a forward less on each further device.
    const int usual = shape.chunks == 1
                          ? shape.devices - 1 - device
                          : 2 * (shape.devices - 1 - device) +
                                (shape.chunks - 1) * shape.devices;
    const int warm_up = std::min(usual, total);
    for (int i = 0; i < warm_up; ++i) forward(i);
    for (int i = 0; i < total; ++i) {
      if (i + warm_up < total) forward(i + warm_up);
      backward(i);
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> LoopedBfs(const ScheduleShape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckShape("looped_bfs", shape, 1, 1 << 20));
  Schedule schedule = Looped("looped_bfs", shape);
  for (int device = 0; device < shape.devices; ++device) {
    const std::vector<int>& stages = schedule.stages_of[device];
    std::vector<Action>& actions = schedule.actions[device];
    for (int stage : stages) {
      for (int m = 0; m < shape.microbatches; ++m) {
        actions.push_back({kForward, stage, m});
      }
    }
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      for (int m = 0; m < shape.microbatches; ++m) {
        actions.push_back({kBackward, *stage, m});
      }
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> ZeroBubbleH1(const ScheduleShape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckShape("zb_h1", shape, 1, 1));
  Schedule schedule = Looped("zb_h1", shape);
  for (int device = 0; device < shape.devices; ++device) {
    std::vector<Action>& actions = schedule.actions[device];
    int forward = 0;
    int weight = 0;
    const int warm_up = std::min(shape.devices - device, shape.microbatches);
    while (forward < warm_up) actions.push_back({kForward, device, forward++});
    // A device further down has fewer microbatches under way, and puts the
    // gradients of so many more weights off: what it gains in time goes up the
    // pipeline.
    for (int m = 0; m < shape.microbatches; ++m) {
      actions.push_back({kInput, device, m});
      if (m >= device) actions.push_back({kWeight, device, weight++});
      if (forward < shape.microbatches) {
        actions.push_back({kForward, device, forward++});
      }
    }
    while (weight < shape.microbatches) {
      actions.push_back({kWeight, device, weight++});
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> ZeroBubbleV(const ScheduleShape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckShape("zb_v", shape, 2, 2));
  Schedule schedule = Looped("zb_v", shape);
  for (int device = 0; device < shape.devices; ++device) {
    schedule.stages_of[device] = {device, 2 * shape.devices - 1 - device};
    schedule.actions[device] = ActionsOfV(device, shape);
  }
  return schedule;
}

absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape) {
  for (const Named& each : kSchedules) {
    if (name == each.name) return each.make(shape);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the schedule ", name,
      " is not known; known are: ", absl::StrJoin(ScheduleNames(), ", ")));
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const Named& each : kSchedules) names.emplace_back(each.name);
  return names;
}

}  // namespace tandem
