// Step trace: --trace_file, which shows what all ranks did in some steps.

#ifndef TANDEM_TOOLS_TRAINER_STEP_TRACE_H_
#define TANDEM_TOOLS_TRAINER_STEP_TRACE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/instrument/trace.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/run_report.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Not thread-safe.
class StepTrace {
 public:
  // What it is given must outlive it.
  StepTrace(const TrainOptions& options, Communicator& world)
      : options_(options), world_(world) {}

  // Between the beginning of the first step and the end of the last.
  bool is_on() const { return is_on_; }
  // Whether the trace begins with this step.
  bool BeginsWith(int64_t step) const;

  // Around a step, from before its batch is loaded until it is reported.
  void BeginStep(int64_t step);
  void EndStep(int64_t step);
  // Whether this step is the last one to be shown.
  bool EndsWith(int64_t step) const;

  // Ends the trace of this process, and writes those of all ranks, by rank 0's
  // clock, to --trace_file. Lines for a person, on rank 0: where the trace is,
  // which events it had no room for, and why it could not be written, which
  // costs no training. Collective.
  absl::StatusOr<std::vector<std::string>> Write();

 private:
  const TrainOptions& options_;
  Communicator& world_;
  bool is_on_ = false;
  int64_t first_ = 0;  // step of the trace
  int64_t last_ = 0;   // so far
  TraceEvent::Clock::time_point begun_;
};

// Whether the steps to be traced come, of a job that has done `done` of
// `in_all` steps. The same command starts a job and goes on with it: what
// traced a step then was an earlier process of the job, which a line says.
absl::Status CheckTrace(const Job& job, int64_t done, int64_t in_all,
                        RunReport& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STEP_TRACE_H_
