#include "tools/trainer/starting_point.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/step_folders.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/initial_weights.h"

namespace tandem {

void RemoveLeftovers(const Job& job, RunReport& report) {
  const std::string& folder = job.options.save_dir;
  if (!job.speaks() || folder.empty()) return;
  for (const std::string& name : RemoveIncompleteCheckpoints(folder)) {
    report.Say(absl::StrCat("removed ", folder, "/", name,
                            ", a save that was never finished"));
  }
}

namespace {

absl::StatusOr<std::optional<TrainPosition>> LoadStart(Job& job,
                                                       RunReport& report) {
  Resumed resumed;
  if (!job.options.resume.empty()) {
    TANDEM_ASSIGN_OR_RETURN(resumed, ResumeJob(job));
    report.Say(resumed.lines);
  }
  if (!resumed.position.has_value() && !job.options.init_from.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string loaded, LoadInitialWeights(job));
    report.Say(loaded);
  }
  return resumed.position;
}

}  // namespace

absl::StatusOr<JobStart> FindStart(Job& job, RunReport& report,
                                   Replacement* replacement) {
  JobStart start;
  if (!job.takes_over()) {
    TANDEM_ASSIGN_OR_RETURN(start.resumed, LoadStart(job, report));
    start.stand.position = start.resumed.value_or(TrainPosition());
    start.stand.evaluated = start.stand.position.step;
  }
  if (replacement == nullptr) return start;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          replacement->Begin(job, &start.stand));
  report.Say(lines);
  return start;
}

}  // namespace tandem
