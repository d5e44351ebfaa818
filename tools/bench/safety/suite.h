// The suite "safety": what safety, and being observed, costs a training.
//
// What an entry of the flight recorder costs.

#ifndef TANDEM_TOOLS_BENCH_SAFETY_SUITE_H_
#define TANDEM_TOOLS_BENCH_SAFETY_SUITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// Nanoseconds from an entry's scheduling to its end, as a bucket's all-reduce
// is noted, while `threads` do so at the same time: as each of them sees it.
double FlightEntryNanoseconds(int threads);

struct SafetyBench {
  // Names that WorkloadNamed takes.
  std::vector<std::string> models = {"mlp_wide", "gpt_tiny"};
  int ranks = 2;
  int steps = 350;       // of each job
  int save_every = 100;  // fewer than `steps`
  int rounds = 5;        // in which each way comes once
  std::string folder;    // an existing one, for checkpoints and reports
};

// One means of safety, by round.
struct SafetyResult {
  std::string model;
  std::string means;            // "--skip_nonfinite"
  int64_t every = 1;            // of so many steps one has it
  std::vector<double> cost_ms;  // each time
  // A step's besides, median: in the job without any that came before it in the
  // round, or in its own.
  std::vector<double> plain_ms;
};

// Percents of the steps' time, by round.
std::vector<double> Shares(const SafetyResult& result);

// What a means costs a step is the difference of two jobs' median steps; a
// check that is for every hundredth step is made in each, and its cost divided,
// and so is a report of every 25th step to a person and all files.
// The recorder's is the entries of a step times what one costs here, measured
// by itself, a checkpoint's how long the loop stood still. The first of the
// results of a model is that of no means at all: how far two jobs differ by
// themselves, which is more than many a cost.
// NotFound for an unknown model; Internal for a job that fails.
absl::StatusOr<std::vector<SafetyResult>> MeasureSafety(
    const SafetyBench& bench);

// "costs", by means: a step's milliseconds without any, what it costs each
// time, in one of how many steps, and the percents that are of all steps' time,
// with the least and the greatest of the rounds'. All else is medians.
std::vector<Table> SafetyTables(const std::vector<SafetyResult>& results);

absl::StatusOr<SuiteReport> RunSafetySuite(const BenchFlags& flags,
                                           const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SAFETY_SUITE_H_
