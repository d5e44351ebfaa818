#include "tools/bench/pipeline/suite.h"

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/pipeline/run.h"
#include "tools/bench/process/program.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kUsualRounds = 7;

int CountDevices(const PipelineResult& result) {
  return result.bench.layout.devices_of_replica();
}

// What a microbatch of that side costs beyond theory.
double Overhead(const PipelineResult& result, const SideResult& side) {
  return MicrobatchOverhead(Median(side.step_ms), Median(side.alone_ms),
                            result.limit, CountDevices(result),
                            side.setting.microbatches);
}

Table EfficiencyTable(const PipelineResults& results) {
  Table table = {"efficiency",
                 {{"name"},
                  {"alone", "ms"},
                  {"efficiency"},
                  {"limit"},
                  {"of_limit"},
                  {"microbatch", "ms"},
                  {"peer_efficiency"},
                  {"peer_microbatch", "ms"}}};
  for (const PipelineResult& result : results.cases) {
    const int devices = CountDevices(result);
    const double efficiency = PipelineEfficiency(result.ours, devices);
    std::vector<json> row = {result.bench.name,
                             Median(result.ours.alone_ms),
                             efficiency,
                             result.limit,
                             efficiency / result.limit,
                             Overhead(result, result.ours),
                             nullptr,
                             nullptr};
    const auto peer = absl::c_find_if(result.peers, [](const SideResult& each) {
      return !each.alone_ms.empty();
    });
    if (peer != result.peers.end()) {
      row[6] = PipelineEfficiency(*peer, devices);
      row[7] = Overhead(result, *peer);
    }
    table.Add(std::move(row));
  }
  return table;
}

Table PartsTable(const PipelineResults& results) {
  Table table = {"parts",
                 {{"name"},
                  {"step", "ms"},
                  {"whole", "ms"},
                  {"microbatching", "ms"},
                  {"bubble", "ms"},
                  {"imbalance", "ms"},
                  {"rest", "ms"}}};
  for (const PipelineResult& result : results.cases) {
    const StepParts& parts = result.parts;
    table.Add({result.bench.name, parts.step, parts.whole, parts.microbatching,
               parts.bubble, parts.imbalance, parts.rest});
  }
  return table;
}

// For a model and a peer, the fastest case of each side.
struct Best {
  std::string ours;
  std::string peers;
  double ours_ms = 0;
  double peer_ms = 0;
};

void Improve(const SideResult& side, double& best_ms, std::string& best) {
  const double ms = Median(side.step_ms);
  if (best_ms > 0 && best_ms <= ms) return;
  best_ms = ms;
  best = ToString(side.setting);
}

Table BestTable(const PipelineResults& results) {
  std::map<std::pair<std::string, std::string>, Best> all;
  for (const PipelineResult& result : results.cases) {
    for (const SideResult& peer : result.peers) {
      if (peer.failed()) continue;
      Best& best = all[{result.bench.workload.model, peer.name}];
      Improve(result.ours, best.ours_ms, best.ours);
      Improve(peer, best.peer_ms, best.peers);
    }
  }
  Table table = {"best",
                 {{"name"},
                  {"peer"},
                  {"ours", "ms"},
                  {"peer", "ms"},
                  {"ratio", "", 2},
                  {"ours"},
                  {"peers"}}};
  for (const auto& [key, best] : all) {
    table.Add({key.first, key.second, best.ours_ms, best.peer_ms,
               best.peer_ms / best.ours_ms, best.ours, best.peers});
  }
  return table;
}

Table UnavailableTable(const PipelineResults& results) {
  Table table = {"unavailable", {{"name"}, {"schedule"}, {"reason"}}};
  for (const UnavailableSchedule& each : results.unavailable) {
    table.Add({each.model, each.schedule, each.reason});
  }
  return table;
}

}  // namespace

double PipelineEfficiency(const SideResult& side, int devices) {
  if (side.step_ms.empty() || side.step_ms.size() != side.alone_ms.size()) {
    return 0;
  }
  return PairedRatio(side.alone_ms, side.step_ms).ratio / devices;
}

std::vector<Table> PipelineTables(const PipelineResults& results) {
  CaseTables cases({{"ours_cpu", "ms"},
                    {"peer_cpu", "ms"},
                    {"ours_setting"},
                    {"peer_setting"}});
  for (const PipelineResult& result : results.cases) {
    cases.Add(result, [&](const SideResult& peer) -> std::vector<json> {
      // Tandem's rank has all devices, a peer's one.
      return {MedianOrZero(result.ours.cpu_ms) / CountDevices(result),
              MedianOrZero(peer.cpu_ms), ToString(result.ours.setting),
              ToString(peer.setting)};
    });
  }
  std::vector<Table> tables = cases.tables();
  tables.push_back(EfficiencyTable(results));
  tables.push_back(PartsTable(results));
  tables.push_back(BestTable(results));
  tables.push_back(UnavailableTable(results));
  return tables;
}

absl::StatusOr<SuiteReport> RunPipelineSuite(const BenchFlags& flags,
                                             const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("devices", flags.devices, 2));
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", flags.peers, {kPipelining, kSingle}));
  const std::vector<std::string> peers =
      flags.peers.empty() ? std::vector<std::string>{kPipelining, kSingle}
                          : flags.peers;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesFromFlags(PipelineCases(flags.devices), flags));
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions options,
                          OptionsFromFlags(flags, kUsualRounds, folder));
  const std::vector<std::vector<Case>> models = ByModel(cases);
  PipelineResults results;
  for (const std::vector<Case>& model : models) {
    TANDEM_ASSIGN_OR_RETURN(PipelineResults of_model,
                            RunPipelineModel(model, peers, options));
    // Shown as soon as a model is through: a run of all takes a while.
    if (models.size() > 1) ShowTables(PipelineTables(of_model));
    absl::c_move(of_model.cases, std::back_inserter(results.cases));
    absl::c_move(of_model.unavailable, std::back_inserter(results.unavailable));
  }
  SuiteReport report;
  report.tables = PipelineTables(results);
  if (absl::c_any_of(results.cases, HasFailures)) {
    report.status = absl::UnavailableError("a peer has no figures: see above");
  }
  return report;
}

}  // namespace tandem
