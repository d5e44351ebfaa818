// Kill trials, as many as one likes, with a table:
//
//   bazel run //tests/e2e/kills:kill_trials -- --trials=200 --seed=1

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/e2e/kills/trial.h"

ABSL_FLAG(int, trials, 200, "How many.");
ABSL_FLAG(uint64_t, seed, 1, "It draws victims and moments.");

namespace tandem {
namespace {

struct Row {
  int trials = 0, hit = 0, restarts = 0, failed = 0;
};

std::string RowOf(const Trial& trial) {
  const char* const victims[] = {"one rank", "all ranks", "the launcher"};
  return trial.layout->name + ", " +
         (trial.point.empty()
              ? std::string(victims[static_cast<int>(trial.victim)]) +
                    " at a random moment"
              : "at " + trial.point);
}

int Main() {
  std::map<std::string, Undisturbed> undisturbed;
  for (const KilledLayout& layout : KilledLayouts()) {
    undisturbed[layout.name] = RunUndisturbed(layout);
  }
  std::map<std::string, Row> rows;
  int failed = 0;
  int done = 0;
  for (const Trial& trial :
       MakeTrials(absl::GetFlag(FLAGS_trials), absl::GetFlag(FLAGS_seed))) {
    const TrialEnd end = RunTrial(trial, undisturbed.at(trial.layout->name));
    Row& row = rows[RowOf(trial)];
    ++row.trials;
    row.hit += end.was_hit ? 1 : 0;
    row.restarts += end.restarts;
    std::fprintf(stderr, "%d  %s: %s\n", ++done, Describe(trial).c_str(),
                 end.problem.empty() ? "as undisturbed" : end.problem.c_str());
    if (end.problem.empty()) continue;
    ++row.failed;
    ++failed;
  }
  std::printf("| killed | trials | hit | restarts | ended otherwise |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const auto& [name, row] : rows) {
    std::printf("| %s | %d | %d | %d | %d |\n", name.c_str(), row.trials,
                row.hit, row.restarts, row.failed);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tandem::Main();
}
