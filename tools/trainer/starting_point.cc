#include "tools/trainer/starting_point.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/random_bytes.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/comm/group_agreement.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/initial_weights.h"
#include "tools/trainer/restarted_job.h"

namespace tandem {

void RemoveLeftovers(const Job& job, RunReport& report) {
  const std::string& folder = job.options.save_dir;
  if (!job.speaks() || folder.empty()) return;
  for (const std::string& name : RemoveIncompleteCheckpoints(folder, job.id)) {
    report.Say(absl::StrCat("removed ", folder, "/", name,
                            ", a save that was never finished"));
  }
}

namespace {

// None for a job that takes over.
absl::StatusOr<Resumed> LoadStart(Job& job, RunReport& report) {
  Resumed resumed;
  if (job.takes_over()) return resumed;
  if (!job.options.resume.empty()) {
    TANDEM_ASSIGN_OR_RETURN(resumed, ResumeJob(job));
    report.Say(resumed.lines);
  }
  if (!resumed.position.has_value() && !job.options.init_from.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string loaded, LoadInitialWeights(job));
    report.Say(loaded);
  }
  return resumed;
}

// The one that a checkpoint or another rank has, or a new one. Collective.
absl::Status AgreeOnId(Job& job, const std::string& resumed) {
  std::string mine = resumed.empty() ? job.id : resumed;
  if (mine.empty() && job.speaks()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(8));
    mine = absl::BytesToHexString(bytes);
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      job.world->AllGatherString(mine, [] { return "which job this is"; }));
  const auto known =
      std::find_if(all.begin() + (job.takes_over() ? 1 : 0), all.end(),
                   [](const std::string& each) { return !each.empty(); });
  job.id = known == all.end() ? all.front() : *known;
  return absl::OkStatus();
}

// Id of the job that saved it; "": nobody knows.
std::string SavingJob(const std::string& checkpoint) {
  const auto manifest = ReadManifest(checkpoint);
  if (!manifest.ok()) return "";
  const auto progress = ProgressOfCheckpoint(checkpoint, manifest->metadata);
  return progress.ok() ? progress->job : "";
}

// Checkpoints of steps that this job has yet to do, as rank 0 sees them, would
// be taken for its own. `said`: a line about those that are.
absl::Status CheckLaterCheckpoints(const Job& job, const JobStart& start,
                                   std::string* said) {
  const TrainOptions& options = job.options;
  const std::vector<StepFolder> all = CompleteCheckpoints(options.save_dir);
  const int64_t step = start.stand.position.step;
  if (all.empty() || all.front().step <= step) return absl::OkStatus();
  const std::string& newest = all.front().path;
  const std::string saved_by = SavingJob(newest);
  if (!start.resumed || (!saved_by.empty() && saved_by != job.id)) {
    return MixesJobs(options.save_dir, newest, step);
  }
  *said = absl::StrCat(
      "note: ", options.save_dir, " has later checkpoints of this job, up to ",
      newest, ", which --resume=auto would take before those from here on");
  return absl::OkStatus();
}

absl::Status LookForLaterCheckpoints(const Job& job, const JobStart& start,
                                     RunReport& report) {
  if (job.takes_over() || job.options.eval_only ||
      job.options.save_dir.empty()) {
    return absl::OkStatus();
  }
  std::string said;
  const absl::Status found = job.speaks()
                                 ? CheckLaterCheckpoints(job, start, &said)
                                 : absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(found, "found no other job's checkpoints", *job.world));
  if (!said.empty()) report.Say(said);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobStart> FindStart(Job& job, RunReport& report,
                                   Replacement* replacement) {
  JobStart start;
  TANDEM_ASSIGN_OR_RETURN(const Resumed resumed, LoadStart(job, report));
  start.resumed = resumed.position;
  start.stand.position = resumed.position.value_or(TrainPosition());
  TANDEM_RETURN_IF_ERROR(AgreeOnId(job, resumed.job));
  TANDEM_RETURN_IF_ERROR(LookForLaterCheckpoints(job, start, report));
  if (replacement != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                            replacement->Begin(job, &start.stand));
    report.Say(lines);
  }
  report.report().ShowStart({job.id, start.stand.position.step, resumed.path});
  return start;
}

}  // namespace tandem
