#include "tools/bench/safety/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text_table.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string Milliseconds(const std::vector<double>& ms) {
  return absl::StrFormat("%.3f", Median(ms));
}

}  // namespace

std::string SafetyTable(const std::vector<SafetyResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"model", "step ms", "means", "ms", "in steps", "%", "(min to max)"}};
  for (const SafetyResult& each : results) {
    const std::vector<double> shares = Shares(each);
    const auto [min, max] = std::minmax_element(shares.begin(), shares.end());
    rows.push_back({each.model, Milliseconds(each.plain_ms), each.means,
                    Milliseconds(each.cost_ms), absl::StrCat(each.every),
                    absl::StrFormat("%.2f", Median(shares)),
                    absl::StrFormat("%.2f to %.2f", *min, *max)});
  }
  return TextTable(rows);
}

json SafetyJson(const std::vector<SafetyResult>& results) {
  json costs = json::array();
  for (const SafetyResult& each : results) {
    const std::vector<double> shares = Shares(each);
    const auto [min, max] = std::minmax_element(shares.begin(), shares.end());
    costs.push_back({{"model", each.model},
                     {"means", each.means},
                     {"step_ms", Median(each.plain_ms)},
                     {"cost_ms", Median(each.cost_ms)},
                     {"every", each.every},
                     {"percent", Median(shares)},
                     {"percent_min", *min},
                     {"percent_max", *max}});
  }
  return {{"costs", costs}};
}

}  // namespace tandem
