// Times: what a pipeline's devices spent their time on, and what they held.

#include <ATen/ops/tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/instrument/trace.h"
#include "parallel/ddp/logging.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/report/bubble_report.h"
#include "parallel/report/pipeline_times.h"
#include "parallel/report/pipeline_trace.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

class TimesPart : public StepPart {
 public:
  explicit TimesPart(const MeshModel& model)
      : model_(model), times_(model.options.schedule) {}

  absl::Status AfterBackward(StepContext& step) override {
    step.pending->times = {
        model_.executor->moments(), step.samples,
        step.microbatches == model_.options.schedule.microbatches};
    return absl::OkStatus();
  }

  absl::Status Read(PendingStep& step, const double*& numbers,
                    StepScore* score) override {
    to_note_.push_back({step.number, std::move(step.times)});
    return absl::OkStatus();
  }

  void AfterReading() override {
    NoteTimes(/*waits=*/Trace::OfProcess().is_on());
  }

  // DDP's logging data over this rank's stages.
  std::vector<std::pair<std::string, double>> Measurements() const override;

  // bubble_report.h's, and how many microbatches' activations each device held
  // at most, beside the schedule's bound.
  absl::StatusOr<std::string> DescribeTimes() override;

 private:
  struct Noted {
    int64_t number = 0;  // of the step, from 1
    PendingStep::Times times;
  };

  // Measures steps that all devices have ended, or, waiting, all of them.
  void NoteTimes(bool waits);
  void Measure(const Noted& step, bool is_last);
  void ShowInTrace(const PipelineTimeline& timeline, int64_t step) const;
  void NoteForward(const PipelineTimeline& timeline) const;

  const MeshModel& model_;
  std::deque<Noted> to_note_;
  PipelineTimes times_;
  int64_t batch_size_ = 0;  // of the last step that was measured
};

void TimesPart::NoteTimes(bool waits) {
  while (!to_note_.empty() &&
         (waits || HaveCome(to_note_.front().times.moments))) {
    const Noted step = std::move(to_note_.front());
    to_note_.pop_front();
    Measure(step, /*is_last=*/to_note_.empty());
  }
}

void TimesPart::Measure(const Noted& step, bool is_last) {
  const PipelineTimeline timeline = AwaitTimes(step.times.moments);
  if (step.times.is_whole) {
    times_.Add(timeline);
    batch_size_ = step.times.samples;
    ShowInTrace(timeline, step.number);
  }
  // Reducers know their last step.
  if (is_last) NoteForward(timeline);
}

// A step that devices began before the trace did is not of it.
void TimesPart::ShowInTrace(const PipelineTimeline& timeline,
                            int64_t step) const {
  Trace& trace = Trace::OfProcess();
  if (!trace.is_on()) return;
  for (const std::vector<ActionTime>& device : timeline) {
    if (!device.empty() && device.front().came < trace.started()) return;
  }
  AddToTrace(
      timeline, model_.executor->schedule(),
      absl::StrCat("step ", step, " of replica ", model_.groups.replica()),
      trace);
}

void TimesPart::NoteForward(const PipelineTimeline& timeline) const {
  std::vector<std::chrono::nanoseconds> times(model_.stages.size());
  for (const std::vector<ActionTime>& device : timeline) {
    for (const ActionTime& each : device) {
      if (!IsForward(each.action.kind)) continue;
      times[static_cast<size_t>(each.action.stage)] +=
          each.computed - each.started;
    }
  }
  for (size_t i = 0; i < model_.stages.size(); ++i) {
    if (model_.stages[i] != nullptr) model_.stages[i]->NoteForward(times[i]);
  }
}

std::vector<std::pair<std::string, double>> TimesPart::Measurements() const {
  std::optional<DdpLoggingData> all;
  for (const TrainedStage* stage : model_.AllStages()) {
    const std::optional<DdpLoggingData> data = stage->logging_data();
    if (!data.has_value()) continue;
    if (!all.has_value()) all.emplace();
    AddStage(*data, &*all);
  }
  if (!all.has_value()) return {};
  return ToList(*all);
}

// A device alone never waits.
absl::StatusOr<std::string> TimesPart::DescribeTimes() {
  if (model_.options.schedule.devices() == 1) return std::string();
  NoteTimes(/*waits=*/true);
  std::vector<double> numbers = times_.Flatten();
  const size_t times = numbers.size();
  const std::vector<int>& peaks = model_.executor->peak_activations();
  numbers.insert(numbers.end(), peaks.begin(), peaks.end());
  if (model_.groups.pipe() != nullptr) {
    const at::Tensor sums = at::tensor(numbers, at::kDouble);
    TANDEM_RETURN_IF_ERROR(model_.groups.pipe()->AllReduceSum(
        sums, [] { return "the devices' times"; }));
    const auto* values = sums.const_data_ptr<double>();
    numbers.assign(values, values + numbers.size());
  }
  PipelineTimes all(model_.executor->schedule());
  TANDEM_RETURN_IF_ERROR(
      all.SetFlat({numbers.begin(), numbers.begin() + times}));
  if (all.steps() == 0) return std::string();
  AdviceLimits limits;
  limits.batch_size = batch_size_;
  limits.layers = model_.layers;
  TANDEM_ASSIGN_OR_RETURN(
      const BubbleReport report,
      ReportBubbles(model_.executor->schedule(), all, limits));
  std::string text = report.text;
  const std::vector<int>& bounds = model_.executor->facts().peak_activations;
  absl::StrAppend(&text, "\nmicrobatches held at most (the schedule's bound):");
  for (size_t i = 0; i < bounds.size(); ++i) {
    absl::StrAppendFormat(&text, "%s device %d: %.0f (%d)", i == 0 ? "" : ",",
                          i, numbers[times + i], bounds[i]);
  }
  return text;
}

}  // namespace

constexpr StepPartRow kTimesRow = {"times", MakeStepPart<TimesPart>};

}  // namespace tandem
