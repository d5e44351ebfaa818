#include "tools/bench/hybrid/report.h"

#include "absl/strings/str_format.h"
#include "core/base/text_table.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

bool HasReproducible(const HybridResult& result) {
  return !result.reproducible.step_ms.empty();
}

// with / without - 1, of the same setting.
Ratio CostOf(const HybridResult& result) {
  Ratio cost = RatioOf(result.reproducible.step_ms, result.plain.step_ms);
  for (double* each : {&cost.ratio, &cost.min, &cost.max}) *each -= 1;
  return cost;
}

double CostOfFastest(const HybridResult& result) {
  return RatioOf(result.reproducible.step_ms, result.ours.step_ms).ratio - 1;
}

json ReproducibleJson(const HybridResult& result) {
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

std::vector<std::string> ReproducibleRow(const HybridResult& result) {
  const Ratio cost = CostOf(result);
  return {result.bench.name,
          Milliseconds(Median(result.plain.step_ms)),
          Milliseconds(Median(result.reproducible.step_ms)),
          absl::StrFormat("%.1f %%", 100 * cost.ratio),
          absl::StrFormat("%.1f %% to %.1f %%", 100 * cost.min, 100 * cost.max),
          absl::StrFormat("%.1f %%", 100 * CostOfFastest(result)),
          ToString(result.plain.setting)};
}

bool HasOverlap(const HybridResult& result) {
  return result.overlap.all_reduce_ms > 0;
}

json OverlapJson(const HybridResult& result) {
  return {{"name", result.bench.name},
          {"all_reduce_ms", result.overlap.all_reduce_ms},
          {"hidden_ms", result.overlap.hidden_ms},
          {"share", result.overlap.share()}};
}

}  // namespace

std::string HybridSpeedTable(const std::vector<HybridResult>& results) {
  SpeedTable table({"MiB a rank", "our setting", "peer's setting"});
  for (const HybridResult& result : results) {
    table.Add(result, [&](const SideResult& peer) -> std::vector<std::string> {
      return {
          absl::StrFormat("%.0f / %.0f", result.ours.peak_mib, peer.peak_mib),
          ToString(result.ours.setting), ToString(peer.setting)};
    });
  }
  return table.Text();
}

std::string ReproducibleTable(const std::vector<HybridResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"reproducible", "without ms", "with ms", "cost", "(min to max)",
       "beside fastest", "setting"}};
  for (const HybridResult& result : results) {
    if (HasReproducible(result)) rows.push_back(ReproducibleRow(result));
  }
  return TextTable(rows);
}

std::string OverlapTable(const std::vector<HybridResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"overlap", "all-reduce ms", "within backward and cool-down", "share"}};
  for (const HybridResult& result : results) {
    if (!HasOverlap(result)) continue;
    rows.push_back({result.bench.name,
                    absl::StrFormat("%.2f", result.overlap.all_reduce_ms),
                    absl::StrFormat("%.2f ms", result.overlap.hidden_ms),
                    absl::StrFormat("%.0f %%", 100 * result.overlap.share())});
  }
  return TextTable(rows);
}

json HybridJson(const std::vector<HybridResult>& results) {
  json report = {{"cases", json::array()}};
  for (const HybridResult& result : results) {
    AddToJson(
        result,
        [&](const SideResult& peer) -> json {
          return {{"ours_mib", result.ours.peak_mib},
                  {"peer_mib", peer.peak_mib},
                  {"ours_setting", ToString(result.ours.setting)},
                  {"peer_setting", ToString(peer.setting)}};
        },
        report);
    if (HasReproducible(result)) {
      report["reproducible"].push_back(ReproducibleJson(result));
    }
    if (HasOverlap(result)) report["overlap"].push_back(OverlapJson(result));
  }
  return report;
}

}  // namespace tandem
