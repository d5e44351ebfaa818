#include "tools/bench/hybrid/suite.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/flags.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/hybrid/cases.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kUsualRounds = 7;

Table ReproducibleTable(const std::vector<HybridResult>& results) {
  Table table = {"reproducible",
                 {{"name"},
                  {"without", "ms"},
                  {"with", "ms"},
                  {"cost"},
                  {"cost_min"},
                  {"cost_max"},
                  {"cost_of_fastest"},
                  {"setting"}}};
  for (const HybridResult& result : results) {
    const std::vector<double>& with = result.reproducible.step_ms;
    if (with.empty()) continue;
    const Ratio cost = RatioOf(with, result.plain.step_ms);
    table.Add({result.bench.name, Median(result.plain.step_ms), Median(with),
               cost.ratio - 1, cost.min - 1, cost.max - 1,
               RatioOf(with, result.ours.step_ms).ratio - 1,
               ToString(result.plain.setting)});
  }
  return table;
}

Table OverlapTable(const std::vector<HybridResult>& results) {
  Table table = {
      "overlap",
      {{"name"}, {"all_reduce", "ms"}, {"hidden", "ms"}, {"share", "", 2}}};
  for (const HybridResult& result : results) {
    const OverlapTimes& times = result.overlap;
    if (times.all_reduce_ms == 0) continue;
    table.Add({result.bench.name, times.all_reduce_ms, times.hidden_ms,
               times.share()});
  }
  return table;
}

}  // namespace

std::vector<Table> HybridTables(const std::vector<HybridResult>& results) {
  CaseTables cases({{"ours", "MiB", 0},
                    {"peer", "MiB", 0},
                    {"ours_setting"},
                    {"peer_setting"}});
  for (const HybridResult& result : results) {
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      return {result.ours.peak_mib, peer.peak_mib,
              ToString(result.ours.setting), ToString(peer.setting)};
    });
  }
  std::vector<Table> tables = cases.tables();
  tables.push_back(ReproducibleTable(results));
  tables.push_back(OverlapTable(results));
  return tables;
}

absl::StatusOr<SuiteReport> RunHybridSuite(const BenchFlags& flags,
                                           const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(HybridCases(), flags));
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  const std::vector<std::vector<Case>> models = ByModel(cases);
  std::vector<HybridResult> results;
  for (const std::vector<Case>& model : models) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<HybridResult> its,
                            RunHybridModel(model, flags.reproducible, options));
    // As soon as a model is through: a run of all takes a while.
    if (models.size() > 1) ShowTables(HybridTables(its));
    absl::c_move(its, std::back_inserter(results));
  }
  SuiteReport report;
  report.tables = HybridTables(results);
  if (absl::c_any_of(results, HasFailures)) {
    report.status = absl::UnavailableError("a peer has no figures: see above");
  }
  return report;
}

}  // namespace tandem
