#include "tools/bench/pipeline/report.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text_table.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

// Of a model and a peer: the fastest case of each side.
struct Best {
  std::string ours;
  std::string peers;
  double ours_ms = 0;
  double peer_ms = 0;

  double ratio() const { return peer_ms / ours_ms; }
};

void Improve(const SideResult& side, double& best_ms, std::string& best) {
  const double ms = Median(side.step_ms);
  if (best_ms > 0 && best_ms <= ms) return;
  best_ms = ms;
  best = ToString(side.setting);
}

// By model and peer.
std::map<std::pair<std::string, std::string>, Best> BestOfModels(
    const PipelineResults& results) {
  std::map<std::pair<std::string, std::string>, Best> all;
  for (const PipelineResult& result : results.cases) {
    for (const SideResult& peer : result.peers) {
      if (peer.failed()) continue;
      Best& best = all[{result.bench.workload.model, peer.name}];
      Improve(result.ours, best.ours_ms, best.ours);
      Improve(peer, best.peer_ms, best.peers);
    }
  }
  return all;
}

int DevicesOf(const PipelineResult& result) {
  return result.bench.layout.devices_of_replica();
}

// Tandem's rank has all devices, a peer's one.
double CpuMsOfDevice(const PipelineResult& result) {
  return MedianOrZero(result.ours.cpu_ms) / DevicesOf(result);
}

json FurtherJson(const PipelineResult& result, const SideResult& peer) {
  const int devices = DevicesOf(result);
  return {{"efficiency", EfficiencyOf(result.ours, devices)},
          {"limit", result.limit},
          {"peer_efficiency", EfficiencyOf(peer, devices)},
          {"ours_cpu_ms", CpuMsOfDevice(result)},
          {"peer_cpu_ms", MedianOrZero(peer.cpu_ms)},
          {"ours_setting", ToString(result.ours.setting)},
          {"peer_setting", ToString(peer.setting)}};
}

std::string Percent(double part) {
  return absl::StrFormat("%.1f%%", 100 * part);
}

// What a microbatch of that side costs beyond theory.
std::string Overhead(const PipelineResult& result, const SideResult& side) {
  const double ms = OverheadOfMicrobatch(
      Median(side.step_ms), Median(side.alone_ms), result.limit,
      DevicesOf(result), side.setting.microbatches);
  return absl::StrFormat("%.2f ms", ms);
}

std::vector<std::string> EfficiencyRow(const PipelineResult& result) {
  const int devices = DevicesOf(result);
  const double efficiency = EfficiencyOf(result.ours, devices);
  std::vector<std::string> row = {result.bench.name,
                                  Milliseconds(Median(result.ours.alone_ms)),
                                  Percent(efficiency),
                                  Percent(result.limit),
                                  Percent(efficiency / result.limit),
                                  "",
                                  Overhead(result, result.ours),
                                  ""};
  for (const SideResult& peer : result.peers) {
    if (peer.alone_ms.empty()) continue;
    row[5] = Percent(EfficiencyOf(peer, devices));
    row[7] = Overhead(result, peer);
    break;
  }
  return row;
}

}  // namespace

double EfficiencyOf(const SideResult& side, int devices) {
  if (side.step_ms.empty() || side.step_ms.size() != side.alone_ms.size()) {
    return 0;
  }
  return RatioOf(side.alone_ms, side.step_ms).ratio / devices;
}

std::string PipelineSpeedTable(const PipelineResults& results) {
  SpeedTable table({"cpu, ours/peer", "our setting", "peer's setting"});
  for (const PipelineResult& result : results.cases) {
    table.Add(result, [&](const SideResult& peer) -> std::vector<std::string> {
      return {absl::StrFormat("%.1f / %.1f", CpuMsOfDevice(result),
                              MedianOrZero(peer.cpu_ms)),
              ToString(result.ours.setting), ToString(peer.setting)};
    });
  }
  std::string text = table.Text();
  for (const UnavailableSchedule& each : results.unavailable) {
    absl::StrAppend(&text, each.model, ": the peer's schedule ", each.schedule,
                    " does not run: ", each.reason.substr(0, 200), "\n");
  }
  return text;
}

std::string EfficiencyTable(const PipelineResults& results) {
  std::vector<std::vector<std::string>> rows = {
      {"case", "alone ms", "efficiency", "limit", "of limit", "peer's",
       "a microb.", "peer's"}};
  for (const PipelineResult& result : results.cases) {
    rows.push_back(EfficiencyRow(result));
  }
  return TextTable(rows);
}

std::string StepPartsTable(const PipelineResults& results) {
  std::vector<std::vector<std::string>> rows = {{"case, ms", "step", "floor",
                                                 "microbatching", "bubble",
                                                 "imbalance", "rest"}};
  for (const PipelineResult& result : results.cases) {
    const StepParts& parts = result.parts;
    std::vector<std::string> row = {result.bench.name};
    for (double part : {parts.step, parts.floor, parts.microbatching,
                        parts.bubble, parts.imbalance, parts.rest}) {
      row.push_back(absl::StrFormat("%.2f", part));
    }
    rows.push_back(std::move(row));
  }
  return TextTable(rows);
}

std::string BestTable(const PipelineResults& results) {
  std::string table;
  for (const auto& [key, best] : BestOfModels(results)) {
    absl::StrAppendFormat(
        &table, "%s: best %.2f ms (%s); %s's best %.2f ms (%s); ratio %.2f\n",
        key.first, best.ours_ms, best.ours, key.second, best.peer_ms,
        best.peers, best.ratio());
  }
  return table;
}

json PipelineJson(const PipelineResults& results) {
  json report = {{"cases", json::array()}, {"best", json::array()}};
  for (const PipelineResult& result : results.cases) {
    AddToJson(
        result,
        [&](const SideResult& peer) { return FurtherJson(result, peer); },
        report);
  }
  for (const auto& [key, each] : BestOfModels(results)) {
    report["best"].push_back({{"name", key.first},
                              {"peer", key.second},
                              {"ours", each.ours},
                              {"ours_ms", each.ours_ms},
                              {"peers", each.peers},
                              {"peer_ms", each.peer_ms},
                              {"ratio", each.ratio()}});
  }
  for (const UnavailableSchedule& each : results.unavailable) {
    report["unavailable"].push_back({{"name", each.model},
                                     {"schedule", each.schedule},
                                     {"reason", each.reason}});
  }
  return report;
}

}  // namespace tandem
