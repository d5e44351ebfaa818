#include "tools/bench/replacement/suite.h"

#include <cstddef>

#include "core/base/status_macros.h"
#include "tools/bench/case/workload.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

absl::StatusOr<ReplacementBench> BenchOf(const BenchFlags& flags,
                                         const std::string& folder) {
  ReplacementBench bench;
  bench.ranks = flags.ranks.value_or(bench.ranks);
  bench.steps = flags.steps.value_or(bench.steps);
  bench.dies_at = flags.dies_at;
  bench.save_every = flags.save_every;
  bench.rounds = flags.rounds.value_or(bench.rounds);
  bench.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", bench.ranks, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("dies_at", bench.dies_at, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("steps", bench.steps, bench.dies_at));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("save_every", bench.save_every, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  return bench;
}

}  // namespace

std::vector<Table> ReplacementTables(
    const std::vector<ModelReplacement>& results) {
  Table ways = {"ways",
                {{"name"}, {"way"}, {"median", "s", 2}, {"lost", "s", 2}}};
  Table rounds = {"rounds",
                  {{"name"},
                   {"undisturbed", "s", 2},
                   {"replaced", "s", 2},
                   {"restarted", "s", 2}}};
  for (const auto& [model, times] : results) {
    const double usual = Median(times.undisturbed);
    ways.Add({model, "nobody dies", usual, 0.0});
    const double replaced = Median(times.replaced);
    ways.Add({model, "--replace_replicas", replaced, replaced - usual});
    const double restarted = Median(times.restarted);
    ways.Add({model, "--max_restarts", restarted, restarted - usual});
    for (size_t i = 0; i < times.undisturbed.size(); ++i) {
      rounds.Add(
          {model, times.undisturbed[i], times.replaced[i], times.restarted[i]});
    }
  }
  return {ways, rounds};
}

absl::StatusOr<SuiteReport> RunReplacementSuite(const BenchFlags& flags,
                                                const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(ReplacementBench bench, BenchOf(flags, folder));
  std::vector<std::string> models = flags.cases;
  if (models.empty()) models.push_back(bench.model);
  for (const std::string& model : models) {
    TANDEM_RETURN_IF_ERROR(WorkloadNamed(model).status());
  }
  std::vector<ModelReplacement> results;
  for (const std::string& model : models) {
    bench.model = model;
    TANDEM_ASSIGN_OR_RETURN(const ReplacementResult times,
                            MeasureReplacement(bench));
    results.push_back({model, times});
  }
  SuiteReport report;
  report.tables = ReplacementTables(results);
  return report;
}

}  // namespace tandem
