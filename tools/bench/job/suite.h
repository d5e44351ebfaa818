// The suite "job": whole jobs beside Python's, with start, loading, evaluation
// and a checkpoint.

#ifndef TANDEM_TOOLS_BENCH_JOB_SUITE_H_
#define TANDEM_TOOLS_BENCH_JOB_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/job/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// MODEL/1x1 on one rank, MODEL/2x1 on two: the trainer's default job, an epoch
// of cnn, on both, and resnet18's first 100 steps. A workload's `steps` are the
// job's; 0: all of the epoch.
std::vector<Case> JobCases();

struct JobBench {
  std::vector<Case> cases;
  // Threads are each case's own: the cores, shared by its ranks.
  JobSetup setup;
  // The peer takes the fastest of these.
  std::vector<int> peer_workers = {0, 2};
};

struct JobResult {
  std::string name;
  int peer_workers = 0;      // of each of the peer's DataLoaders
  std::vector<JobRun> ours;  // by round
  std::vector<JobRun> peer;
};

// Internal, naming what differs, where two whole jobs ended differently: the
// loss of the last steps, or the test set's, by more than the share `tolerance`
// of the peer's, or accuracy by more than that.
absl::Status CompareEnds(const std::string& name, const JobRun& ours,
                         const JobRun& peer, double tolerance);

// Before anything is timed both sides train a few steps, with each number of
// workers, whose losses and test loss must be the same, and then the whole job.
// Then they take turns, each time with the whole job. Prints what it does on
// stderr. Internal where a job fails, or does not do the same.
absl::StatusOr<std::vector<JobResult>> CompareJobs(const JobBench& bench);

// "jobs": seconds from start to end, medians, and peer / ours with the least
// and the greatest of the rounds; floors as JobRun has them. "parts": where
// they went, on each side. "ends": what the last round's jobs came to.
std::vector<Table> JobTables(const std::vector<JobResult>& results);

absl::StatusOr<SuiteReport> RunJobSuite(const BenchFlags& flags,
                                        const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_JOB_SUITE_H_
