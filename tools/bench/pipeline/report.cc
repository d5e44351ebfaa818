#include "tools/bench/pipeline_report.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/bench/comparison.h"
#include "tools/bench/median.h"

namespace tandem {
namespace {

using nlohmann::json;

// Of a model and a peer: the fastest case of each side.
struct Best {
  std::string ours;
  std::string peers;
  double ours_ms = 0;
  double peer_ms = 0;
};

void Improve(double ms, const std::string& name, double& best_ms,
             std::string& best) {
  if (best_ms > 0 && best_ms <= ms) return;
  best_ms = ms;
  best = name;
}

std::map<std::pair<std::string, std::string>, Best> BestOfModels(
    const PipelineResults& results) {
  std::map<std::pair<std::string, std::string>, Best> all;
  for (const PipelineCaseResult& result : results.cases) {
    for (const PipelineSideResult& peer : result.peers) {
      if (!peer.failure.empty()) continue;
      Best& best = all[{result.bench.bench.name, peer.name}];
      Improve(Median(result.ours.step_ms), ToString(result.ours.setting),
              best.ours_ms, best.ours);
      Improve(Median(peer.step_ms), ToString(peer.setting), best.peer_ms,
              best.peers);
    }
  }
  return all;
}

double CpuMs(const PipelineSideResult& side) {
  return side.cpu_ms.empty() ? 0 : Median(side.cpu_ms);
}

Comparison Compare(const PipelineCaseResult& result,
                   const PipelineSideResult& peer) {
  return {result.bench.name, peer.name, peer.failure, result.ours.step_ms,
          peer.step_ms};
}

json CaseJson(const PipelineCaseResult& result, const PipelineSideResult& peer,
              int devices) {
  json figures = FiguresJson(Compare(result, peer));
  figures.update({{"efficiency", EfficiencyOf(result.ours, devices)},
                  {"limit", result.limit},
                  {"peer_efficiency", EfficiencyOf(peer, devices)},
                  {"ours_cpu_ms", CpuMs(result.ours) / devices},
                  {"peer_cpu_ms", CpuMs(peer)},
                  {"ours_setting", ToString(result.ours.setting)},
                  {"peer_setting", ToString(peer.setting)}});
  return figures;
}

double Overhead(const PipelineSideResult& side, double limit, int devices) {
  return OverheadOfMicrobatch(Median(side.step_ms), Median(side.alone_ms),
                              limit, devices, side.setting.microbatches);
}

}  // namespace

std::string PipelineSpeedTable(const PipelineResults& results, int devices) {
  std::string table =
      absl::StrFormat("%-25s %-11s %9s %9s %6s %14s %16s  %-22s %s\n", "case",
                      "peer", "ours ms", "peer ms", "ratio", "(min to max)",
                      "cpu, ours/peer", "our setting", "peer's setting");
  for (const PipelineCaseResult& result : results.cases) {
    for (const PipelineSideResult& peer : result.peers) {
      const Comparison comparison = Compare(result, peer);
      if (comparison.failed()) {
        absl::StrAppend(&table, FailureLine(comparison));
        continue;
      }
      const Ratio ratio = comparison.ratio();
      absl::StrAppendFormat(
          &table,
          "%-25s %-11s %9.2f %9.2f %6.2f %6.2f to %4.2f %7.1f /%7.1f  %-22s "
          "%s\n",
          result.bench.name, peer.name, Median(result.ours.step_ms),
          Median(peer.step_ms), ratio.ratio, ratio.min, ratio.max,
          CpuMs(result.ours) / devices, CpuMs(peer),
          ToString(result.ours.setting), ToString(peer.setting));
    }
  }
  for (const UnavailableSchedule& each : results.unavailable) {
    absl::StrAppend(&table, each.model, ": the peer's schedule ", each.schedule,
                    " does not run: ", each.reason.substr(0, 200), "\n");
  }
  return table;
}

std::string EfficiencyTable(const PipelineResults& results, int devices) {
  std::string table = absl::StrFormat(
      "%-25s %9s %10s %7s %9s %7s %11s %10s\n", "case", "alone ms",
      "efficiency", "limit", "of limit", "peer's", "a microb.", "peer's");
  for (const PipelineCaseResult& result : results.cases) {
    const double efficiency = EfficiencyOf(result.ours, devices);
    absl::StrAppendFormat(&table, "%-25s %9.2f %9.1f%% %6.1f%% %8.1f%%",
                          result.bench.name, Median(result.ours.alone_ms),
                          100 * efficiency, 100 * result.limit,
                          100 * efficiency / result.limit);
    const auto peer = std::find_if(
        result.peers.begin(), result.peers.end(),
        [](const PipelineSideResult& each) { return !each.alone_ms.empty(); });
    const double own = Overhead(result.ours, result.limit, devices);
    if (peer == result.peers.end()) {
      absl::StrAppendFormat(&table, " %7s %8.2f ms\n", "", own);
      continue;
    }
    absl::StrAppendFormat(&table, " %6.1f%% %8.2f ms %7.2f ms\n",
                          100 * EfficiencyOf(*peer, devices), own,
                          Overhead(*peer, result.limit, devices));
  }
  return table;
}

std::string StepPartsTable(const PipelineResults& results) {
  std::string table =
      absl::StrFormat("%-25s %9s %9s %15s %9s %10s %9s\n", "case, ms", "step",
                      "floor", "microbatching", "bubble", "imbalance", "rest");
  for (const PipelineCaseResult& result : results.cases) {
    const StepParts& parts = result.parts;
    absl::StrAppendFormat(
        &table, "%-25s %9.2f %9.2f %15.2f %9.2f %10.2f %9.2f\n",
        result.bench.name, parts.step, parts.floor, parts.microbatching,
        parts.bubble, parts.imbalance, parts.rest);
  }
  return table;
}

std::string BestTable(const PipelineResults& results) {
  std::string table;
  for (const auto& [key, best] : BestOfModels(results)) {
    absl::StrAppendFormat(
        &table, "%s: best %.2f ms (%s); %s's best %.2f ms (%s); ratio %.2f\n",
        key.first, best.ours_ms, best.ours, key.second, best.peer_ms,
        best.peers, best.peer_ms / best.ours_ms);
  }
  return table;
}

json PipelineJson(const PipelineResults& results, int devices) {
  json cases = json::array();
  json failures = json::array();
  for (const PipelineCaseResult& result : results.cases) {
    for (const PipelineSideResult& peer : result.peers) {
      if (peer.failure.empty()) {
        cases.push_back(CaseJson(result, peer, devices));
      } else {
        failures.push_back(FailureJson(Compare(result, peer)));
      }
    }
  }
  json best = json::array();
  for (const auto& [key, each] : BestOfModels(results)) {
    best.push_back({{"name", key.first},
                    {"peer", key.second},
                    {"ours", each.ours},
                    {"ours_ms", each.ours_ms},
                    {"peers", each.peers},
                    {"peer_ms", each.peer_ms},
                    {"ratio", each.peer_ms / each.ours_ms}});
  }
  json report = {{"cases", cases}, {"best", best}};
  if (!failures.empty()) report["failures"] = failures;
  for (const UnavailableSchedule& each : results.unavailable) {
    report["unavailable"].push_back({{"name", each.model},
                                     {"schedule", each.schedule},
                                     {"reason", each.reason}});
  }
  return report;
}

bool HasFailures(const PipelineResults& results) {
  for (const PipelineCaseResult& result : results.cases) {
    for (const PipelineSideResult& peer : result.peers) {
      if (!peer.failure.empty()) return true;
    }
  }
  return false;
}

}  // namespace tandem
