#include "tools/bench/hybrid_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/bench/comparison.h"
#include "tools/bench/median.h"

namespace tandem {
namespace {

using nlohmann::json;

Comparison Compare(const HybridCaseResult& result) {
  return {result.bench.name, result.peer.name, result.peer.failure,
          result.ours.step_ms, result.peer.step_ms};
}

json CaseJson(const HybridCaseResult& result) {
  json figures = FiguresJson(Compare(result));
  figures.update({{"ours_mib", result.ours.peak_mib},
                  {"peer_mib", result.peer.peak_mib},
                  {"ours_setting", ToString(result.ours.setting)},
                  {"peer_setting", ToString(result.peer.setting)}});
  return figures;
}

bool HasReproducible(const HybridCaseResult& result) {
  return !result.reproducible.step_ms.empty();
}

// with / without - 1, of the same setting.
Ratio CostOf(const HybridCaseResult& result) {
  Ratio cost = RatioOf(result.reproducible.step_ms, result.plain.step_ms);
  for (double* each : {&cost.ratio, &cost.min, &cost.max}) *each -= 1;
  return cost;
}

double CostOfFastest(const HybridCaseResult& result) {
  return RatioOf(result.reproducible.step_ms, result.ours.step_ms).ratio - 1;
}

json ReproducibleJson(const HybridCaseResult& result) {
  const Ratio cost = CostOf(result);
  return {{"name", result.bench.name},
          {"setting", ToString(result.plain.setting)},
          {"without_ms", Median(result.plain.step_ms)},
          {"with_ms", Median(result.reproducible.step_ms)},
          {"cost", cost.ratio},
          {"cost_min", cost.min},
          {"cost_max", cost.max},
          {"cost_of_fastest", CostOfFastest(result)}};
}

bool HasOverlap(const HybridCaseResult& result) {
  return result.overlap.all_reduce_ms > 0;
}

json OverlapJson(const HybridCaseResult& result) {
  return {{"name", result.bench.name},
          {"all_reduce_ms", result.overlap.all_reduce_ms},
          {"hidden_ms", result.overlap.hidden_ms},
          {"share", result.overlap.share()}};
}

}  // namespace

std::string HybridSpeedTable(const std::vector<HybridCaseResult>& results) {
  std::string table =
      absl::StrFormat("%-20s %-14s %9s %9s %6s %14s %13s  %-26s %s\n", "case",
                      "peer", "ours ms", "peer ms", "ratio", "(min to max)",
                      "MiB a rank", "our setting", "peer's setting");
  for (const HybridCaseResult& result : results) {
    const Comparison comparison = Compare(result);
    if (comparison.failed()) {
      absl::StrAppend(&table, FailureLine(comparison));
      continue;
    }
    const Ratio ratio = comparison.ratio();
    absl::StrAppendFormat(
        &table,
        "%-20s %-14s %9.2f %9.2f %6.2f %6.2f to %4.2f %6.0f /%5.0f  %-26s %s\n",
        result.bench.name, result.peer.name, Median(result.ours.step_ms),
        Median(result.peer.step_ms), ratio.ratio, ratio.min, ratio.max,
        result.ours.peak_mib, result.peer.peak_mib,
        ToString(result.ours.setting), ToString(result.peer.setting));
  }
  return table;
}

std::string ReproducibleTable(const std::vector<HybridCaseResult>& results) {
  std::string table = absl::StrFormat(
      "%-20s %11s %9s %8s %18s %15s  %s\n", "reproducible", "without ms",
      "with ms", "cost", "(min to max)", "beside fastest", "setting");
  for (const HybridCaseResult& result : results) {
    if (!HasReproducible(result)) continue;
    const Ratio cost = CostOf(result);
    absl::StrAppendFormat(
        &table,
        "%-20s %11.2f %9.2f %6.1f %% %6.1f %% to %5.1f %% %13.1f %%  %s\n",
        result.bench.name, Median(result.plain.step_ms),
        Median(result.reproducible.step_ms), 100 * cost.ratio, 100 * cost.min,
        100 * cost.max, 100 * CostOfFastest(result),
        ToString(result.plain.setting));
  }
  return table;
}

std::string OverlapTable(const std::vector<HybridCaseResult>& results) {
  std::string table =
      absl::StrFormat("%-20s %14s %32s\n", "overlap", "all-reduce ms",
                      "within backward and cool-down");
  for (const HybridCaseResult& result : results) {
    if (!HasOverlap(result)) continue;
    absl::StrAppendFormat(&table, "%-20s %14.2f %23.2f ms %3.0f %%\n",
                          result.bench.name, result.overlap.all_reduce_ms,
                          result.overlap.hidden_ms,
                          100 * result.overlap.share());
  }
  return table;
}

json HybridJson(const std::vector<HybridCaseResult>& results) {
  json report = {{"cases", json::array()}};
  for (const HybridCaseResult& result : results) {
    if (result.peer.failure.empty()) {
      report["cases"].push_back(CaseJson(result));
    } else {
      report["failures"].push_back(FailureJson(Compare(result)));
    }
    if (HasReproducible(result)) {
      report["reproducible"].push_back(ReproducibleJson(result));
    }
    if (HasOverlap(result)) report["overlap"].push_back(OverlapJson(result));
  }
  return report;
}

bool HasFailures(const std::vector<HybridCaseResult>& results) {
  for (const HybridCaseResult& result : results) {
    if (!result.peer.failure.empty()) return true;
  }
  return false;
}

}  // namespace tandem
