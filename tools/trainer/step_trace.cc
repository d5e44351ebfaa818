#include "tools/trainer/step_trace.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/host_clocks.h"
#include "core/files/atomic_file.h"
#include "core/instrument/clock_offset.h"
#include "core/instrument/trace_file.h"
#include "tools/trainer/checkpoints/resume.h"

namespace tandem {
namespace {

// The events of all ranks lie in the memory of rank 0 when it joins them.
constexpr int64_t kMostEvents = 2000000;
constexpr int64_t kLeastEvents = 1000;

int64_t MostEvents(int ranks) {
  return std::clamp(kMostEvents / ranks, kLeastEvents, kMostTraceEvents);
}

// "step 3", "steps 3-5".
std::string NameOfSteps(int64_t first, int64_t last) {
  return first == last ? absl::StrCat("step ", first)
                       : absl::StrCat("steps ", first, "-", last);
}

}  // namespace

bool StepTrace::BeginsWith(int64_t step) const {
  return !is_on_ && !options_.trace_file.empty() &&
         step >= options_.trace_steps.first &&
         step <= options_.trace_steps.last;
}

bool StepTrace::EndsWith(int64_t step) const {
  return is_on_ && step >= options_.trace_steps.last;
}

void StepTrace::BeginStep(int64_t step) {
  if (BeginsWith(step)) {
    is_on_ = true;
    first_ = step;
    Trace::OfProcess().Start(MostEvents(world_.size()));
  }
  if (is_on_) begun_ = TraceEvent::Clock::now();
}

void StepTrace::EndStep(int64_t step) {
  if (!is_on_) return;
  last_ = step;
  Trace::OfProcess().Add({"steps",
                          NameOfSteps(step, step),
                          "",
                          begun_,
                          TraceEvent::Clock::now(),
                          {}});
}

absl::StatusOr<std::vector<std::string>> StepTrace::Write() {
  is_on_ = false;
  Trace& trace = Trace::OfProcess();
  const std::vector<TraceEvent> events = trace.Stop();
  const HostClock clock = HostClock::OfThisHost();
  const auto purpose = [] { return "the trace"; };
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ClockOffset> offsets,
                          ClockOffsets(world_, clock));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> parts,
      world_.AllGatherString(
          TraceToJson(events, {world_.rank(), clock.host, trace.dropped()}),
          purpose));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> dropped,
      world_.AllGatherString(absl::StrCat(trace.dropped()), purpose));
  std::vector<std::string> lines;
  if (world_.rank() != 0) return lines;
  TANDEM_ASSIGN_OR_RETURN(const std::string file, JoinTraces(parts, offsets));
  const absl::Status written = WriteOutputFile(options_.trace_file, file);
  if (!written.ok()) {
    lines.push_back(absl::StrCat("warning: --trace_file: ", written.message(),
                                 "; training goes on without the trace"));
    return lines;
  }
  lines.push_back(absl::StrCat("trace of ", NameOfSteps(first_, last_), ": ",
                               options_.trace_file));
  for (size_t rank = 0; rank < dropped.size(); ++rank) {
    if (dropped[rank] == "0") continue;
    lines.push_back(
        absl::StrCat("the trace lacks ", dropped[rank], " events of rank ",
                     rank, ", which came after ", MostEvents(world_.size()),
                     " others: trace fewer steps (--trace_steps)"));
  }
  return lines;
}

absl::Status CheckTrace(const Job& job, int64_t done, int64_t in_all,
                        RunReport& report) {
  const TrainOptions& options = job.options;
  if (job.takes_over() || options.trace_file.empty()) return absl::OkStatus();
  const auto [first, last] = options.trace_steps;
  const bool goes_on = job.is_restarted() || options.resume == kResumeAuto;
  if (!goes_on || first > done) {
    return CheckStepsToTrace(options, done, in_all);
  }
  const std::string before = absl::StrCat(
      NameOfSteps(first, std::min(last, done)), " (--trace_steps) ",
      first == std::min(last, done) ? "was" : "were", " done before");
  if (last <= done) {
    report.Say(absl::StrCat("no trace: ", before));
    return absl::OkStatus();
  }
  report.Say(
      absl::StrCat("the trace begins with step ", done + 1, ": ", before));
  return CheckStepsToTrace(options, first - 1, in_all);
}

}  // namespace tandem
