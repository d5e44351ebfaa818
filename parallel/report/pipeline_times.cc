#include "parallel/report/pipeline_times.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Clock = ActionTime::Clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// The numbers of each, in the order in which they are flattened.
std::vector<double*> AllNumbers(StageTimes& stage) {
  return {&stage.forward, &stage.backward, &stage.backward_input,
          &stage.backward_weight, &stage.microbatches};
}

std::vector<double*> AllNumbers(DeviceTimes& device) {
  return {&device.steps,      &device.step,          &device.working,
          &device.forward,    &device.backward,      &device.weights,
          &device.input_wait, &device.gradient_wait, &device.copying,
          &device.messages};
}

std::vector<double*> AllNumbers(std::vector<StageTimes>& stages,
                                std::vector<DeviceTimes>& devices) {
  std::vector<double*> all;
  for (StageTimes& stage : stages) {
    for (double* each : AllNumbers(stage)) all.push_back(each);
  }
  for (DeviceTimes& device : devices) {
    for (double* each : AllNumbers(device)) all.push_back(each);
  }
  return all;
}

void AddWork(const ActionTime& time, StageTimes& stage, DeviceTimes& device) {
  const double work = Seconds(time.started, time.computed);
  switch (time.action.kind) {
    case ActionKind::kForward:
      stage.forward += work;
      stage.microbatches += 1;
      device.forward += work;
      break;
    case ActionKind::kBackward:
      stage.backward += work;
      device.backward += work;
      break;
    case ActionKind::kBackwardInput:
      stage.backward_input += work;
      device.backward += work;
      break;
    case ActionKind::kBackwardWeight:
      stage.backward_weight += work;
      device.weights += work;
      break;
    case ActionKind::kUnshard:
    case ActionKind::kReshard:
      break;
  }
}

void AddWaits(const ActionTime& time, DeviceTimes& device) {
  const double wait = Seconds(time.came, time.started);
  if (time.action.kind == ActionKind::kForward) {
    device.input_wait += wait;
  } else {
    device.gradient_wait += wait;
  }
  device.copying += Seconds(time.computed, time.ended);
  if (time.action.kind != ActionKind::kBackwardWeight) device.messages += 1;
}

// From the first action of all devices to the end of the last.
double StepSpan(const PipelineTimeline& step) {
  Clock::time_point begin = Clock::time_point::max();
  Clock::time_point end = Clock::time_point::min();
  for (const auto& actions : step) {
    if (actions.empty()) continue;
    begin = std::min(begin, actions.front().came);
    end = std::max(end, actions.back().ended);
  }
  return end < begin ? 0 : Seconds(begin, end);
}

}  // namespace

PipelineTimes::PipelineTimes(const Schedule& schedule, int skipped)
    : stages_(schedule.stages),
      devices_(schedule.actions.size()),
      to_skip_(skipped) {}

void PipelineTimes::Add(const PipelineTimeline& step) {
  CHECK_EQ(step.size(), devices_.size());
  if (to_skip_ > 0) {
    --to_skip_;
    return;
  }
  const double span = StepSpan(step);
  for (size_t d = 0; d < step.size(); ++d) {
    if (step[d].empty()) continue;  // another rank's
    DeviceTimes& device = devices_[d];
    device.steps += 1;
    device.step += span;
    device.working += Seconds(step[d].front().came, step[d].back().ended);
    for (const ActionTime& time : step[d]) {
      AddWork(time, stages_[time.action.stage], device);
      AddWaits(time, device);
    }
  }
}

void PipelineTimes::Add(const PipelineTimes& other) {
  CHECK_EQ(other.stages_.size(), stages_.size());
  CHECK_EQ(other.devices_.size(), devices_.size());
  const std::vector<double> values = other.Flatten();
  const auto mine = AllNumbers(stages_, devices_);
  for (size_t i = 0; i < mine.size(); ++i) *mine[i] += values[i];
}

std::vector<double> PipelineTimes::Flatten() const {
  auto stages = stages_;
  auto devices = devices_;
  std::vector<double> values;
  for (const double* each : AllNumbers(stages, devices)) {
    values.push_back(*each);
  }
  return values;
}

absl::Status PipelineTimes::SetFlat(const std::vector<double>& values) {
  const auto mine = AllNumbers(stages_, devices_);
  if (values.size() != mine.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the times of a pipeline of ", stages_.size(), " stages on ",
        devices_.size(), " devices are ", mine.size(), " numbers, but ",
        values.size(), " were given"));
  }
  for (size_t i = 0; i < mine.size(); ++i) *mine[i] = values[i];
  return absl::OkStatus();
}

double PipelineTimes::StepSeconds() const {
  double slowest = 0;
  for (const DeviceTimes& device : devices_) {
    if (device.steps > 0) {
      slowest = std::max(slowest, device.step / device.steps);
    }
  }
  return slowest;
}

double PipelineTimes::MessageSeconds() const {
  double copying = 0;
  double messages = 0;
  for (const DeviceTimes& device : devices_) {
    copying += device.copying;
    messages += device.messages;
  }
  return messages > 0 ? copying / messages : 0;
}

std::vector<StageCost> PipelineTimes::StageCosts() const {
  std::vector<StageCost> costs;
  for (const StageTimes& stage : stages_) {
    const double count = std::max(stage.microbatches, 1.0);
    costs.push_back({stage.forward / count,
                     (stage.backward_input + stage.backward / 2) / count,
                     (stage.backward_weight + stage.backward / 2) / count});
  }
  return costs;
}

int PipelineTimes::steps() const {
  double most = 0;
  for (const DeviceTimes& device : devices_)
    most = std::max(most, device.steps);
  return static_cast<int>(most);
}

}  // namespace tandem
