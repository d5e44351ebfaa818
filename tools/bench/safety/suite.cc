#include "tools/bench/safety/suite.h"

#include <algorithm>

#include "core/base/status_macros.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"

namespace tandem {

std::vector<Table> SafetyTables(const std::vector<SafetyResult>& results) {
  Table costs = {"costs",
                 {{"model"},
                  {"step", "ms", 3},
                  {"means"},
                  {"cost", "ms", 3},
                  {"every"},
                  {"percent", "", 2},
                  {"percent_min", "", 2},
                  {"percent_max", "", 2}}};
  for (const SafetyResult& each : results) {
    const std::vector<double> shares = Shares(each);
    const auto [min, max] = std::minmax_element(shares.begin(), shares.end());
    costs.Add({each.model, Median(each.plain_ms), each.means,
               Median(each.cost_ms), each.every, Median(shares), *min, *max});
  }
  return {costs};
}

absl::StatusOr<SuiteReport> RunSafetySuite(const BenchFlags& flags,
                                           const std::string& folder) {
  SafetyBench bench;
  if (!flags.cases.empty()) bench.models = flags.cases;
  bench.ranks = flags.ranks.value_or(bench.ranks);
  bench.steps = flags.steps.value_or(bench.steps);
  bench.save_every = flags.save_every;
  bench.rounds = flags.rounds.value_or(bench.rounds);
  bench.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", bench.ranks, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("save_every", bench.save_every, 1));
  TANDEM_RETURN_IF_ERROR(
      CheckAtLeast("steps", bench.steps, bench.save_every + 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<SafetyResult> results,
                          MeasureSafety(bench));
  SuiteReport report;
  report.tables = SafetyTables(results);
  return report;
}

}  // namespace tandem
