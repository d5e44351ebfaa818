// Damage trials, as many as one likes, with a table:
//
//   bazel run //tests/e2e/kills:damage_trials -- --trials=500 --seed=1

#include <cstdio>
#include <map>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/e2e/kills/damage_trial.h"

ABSL_FLAG(int, trials, 500, "How many.");
ABSL_FLAG(uint64_t, seed, 1, "It draws places.");

namespace tandem {
namespace {

struct Row {
  int trials = 0, failed = 0;
};

int Main() {
  const DamagedJob job;
  std::map<std::string, Row> rows;
  int failed = 0;
  int done = 0;
  for (const DamageTrial& trial : MakeDamageTrials(absl::GetFlag(FLAGS_trials),
                                                   absl::GetFlag(FLAGS_seed))) {
    const std::string problem = job.Run(trial);
    Row& row = rows[KindOf(trial)];
    ++row.trials;
    std::fprintf(stderr, "%d  %s: %s\n", ++done, Describe(trial).c_str(),
                 problem.empty() ? "seen" : problem.c_str());
    if (problem.empty()) continue;
    ++row.failed;
    ++failed;
  }
  std::printf("| damaged | trials | ended otherwise |\n|---|---|---|\n");
  for (const auto& [name, row] : rows) {
    std::printf("| %s | %d | %d |\n", name.c_str(), row.trials, row.failed);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tandem::Main();
}
