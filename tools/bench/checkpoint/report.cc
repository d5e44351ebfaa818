#include "tools/bench/checkpoint/report.h"

#include "absl/strings/str_format.h"
#include "core/base/text_table.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string Milliseconds(const std::vector<double>& ms) {
  return absl::StrFormat("%.1f", Median(ms));
}

std::string MegabytesPerSecond(const CheckpointResult& result,
                               const std::vector<double>& ms) {
  return absl::StrFormat("%.0f",
                         static_cast<double>(result.bytes) / 1e3 / Median(ms));
}

}  // namespace

std::string CheckpointTable(const std::vector<CheckpointResult>& results) {
  std::vector<std::vector<std::string>> rows = {{"state", "operation", "ms",
                                                 "MB/s", "peer's ms",
                                                 "its MB/s", "ratio", "range"}};
  for (const CheckpointResult& each : results) {
    const Ratio ratio = RatioOf(each.peer_ms, each.ours_ms);
    rows.push_back({each.state, each.operation, Milliseconds(each.ours_ms),
                    MegabytesPerSecond(each, each.ours_ms),
                    Milliseconds(each.peer_ms),
                    MegabytesPerSecond(each, each.peer_ms),
                    absl::StrFormat("%.2f", ratio.ratio), Range(ratio)});
  }
  return TextTable(rows);
}

json CheckpointJson(const std::vector<CheckpointResult>& results) {
  json cases = json::array();
  for (const CheckpointResult& each : results) {
    const Ratio ratio = RatioOf(each.peer_ms, each.ours_ms);
    cases.push_back({{"state", each.state},
                     {"operation", each.operation},
                     {"bytes", each.bytes},
                     {"ours_ms", Median(each.ours_ms)},
                     {"peer_ms", Median(each.peer_ms)},
                     {"ratio", ratio.ratio},
                     {"ratio_min", ratio.min},
                     {"ratio_max", ratio.max}});
  }
  return {{"cases", cases}};
}

}  // namespace tandem
