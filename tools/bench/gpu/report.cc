#include "tools/bench/gpu/report.h"

#include "absl/strings/str_format.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

double SamplesPerSecond(const CaseResult& result, const SideResult& side) {
  return static_cast<double>(result.bench.workload.batch_size) * 1e3 /
         Median(side.step_ms);
}

}  // namespace

std::string GpuTable(const std::vector<CaseResult>& results) {
  SpeedTable table({"samples/s ours/peer", "MiB ours/peer"});
  for (const CaseResult& result : results) {
    table.Add(result, [&](const SideResult& peer) -> std::vector<std::string> {
      return {
          absl::StrFormat("%.0f / %.0f", SamplesPerSecond(result, result.ours),
                          SamplesPerSecond(result, peer)),
          absl::StrFormat("%.0f / %.0f", result.ours.peak_mib, peer.peak_mib)};
    });
  }
  return table.Text();
}

json GpuJson(const std::vector<CaseResult>& results,
             const std::string& device) {
  json report = {{"device", device}, {"cases", json::array()}};
  for (const CaseResult& result : results) {
    const auto further = [&](const SideResult& peer) {
      return json{{"ours_samples_per_s", SamplesPerSecond(result, result.ours)},
                  {"peer_samples_per_s", SamplesPerSecond(result, peer)},
                  {"ours_peak_mib", result.ours.peak_mib},
                  {"peer_peak_mib", peer.peak_mib}};
    };
    AddToJson(result, further, report);
  }
  return report;
}

}  // namespace tandem
