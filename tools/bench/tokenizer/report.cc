#include "tools/bench/tokenizer/report.h"

#include "absl/strings/str_format.h"
#include "core/base/text_table.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string MegabytesPerSecond(const TokenizerResult& result,
                               const std::vector<double>& ms) {
  return absl::StrFormat("%.2f",
                         static_cast<double>(result.bytes) / 1e3 / Median(ms));
}

}  // namespace

std::string TokenizerTable(const std::vector<TokenizerResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"tokenizer", "beside", "tokens", "MB/s", "its MB/s", "ratio", "range"}};
  std::string failures;
  for (const TokenizerResult& each : results) {
    if (!each.failure.empty()) {
      absl::StrAppendFormat(&failures, "%s was not timed: %s\n", each.name,
                            each.failure);
      continue;
    }
    const Ratio ratio = RatioOf(each.peer_ms, each.ours_ms);
    rows.push_back({each.name, each.peer, absl::StrFormat("%d", each.tokens),
                    MegabytesPerSecond(each, each.ours_ms),
                    MegabytesPerSecond(each, each.peer_ms),
                    absl::StrFormat("%.2f", ratio.ratio), Range(ratio)});
  }
  return TextTable(rows) + failures;
}

json TokenizerJson(const std::vector<TokenizerResult>& results) {
  json cases = json::array();
  json failures = json::array();
  for (const TokenizerResult& each : results) {
    if (!each.failure.empty()) {
      failures.push_back(
          {{"name", each.name}, {"peer", each.peer}, {"reason", each.failure}});
      continue;
    }
    const Ratio ratio = RatioOf(each.peer_ms, each.ours_ms);
    cases.push_back({{"name", each.name},
                     {"peer", each.peer},
                     {"bytes", each.bytes},
                     {"tokens", each.tokens},
                     {"ours_ms", Median(each.ours_ms)},
                     {"peer_ms", Median(each.peer_ms)},
                     {"ratio", ratio.ratio},
                     {"ratio_min", ratio.min},
                     {"ratio_max", ratio.max}});
  }
  return {{"cases", cases}, {"failures", failures}};
}

}  // namespace tandem
