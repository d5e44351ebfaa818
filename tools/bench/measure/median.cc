#include "tools/bench/measure/median.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tandem {

double Median(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

double MedianOrZero(const std::vector<double>& values) {
  return values.empty() ? 0 : Median(values);
}

std::string Range(const Ratio& ratio) {
  return absl::StrFormat("%.2f to %.2f", ratio.min, ratio.max);
}

Ratio RatioOf(const std::vector<double>& peers,
              const std::vector<double>& ours) {
  CHECK_EQ(peers.size(), ours.size());
  std::vector<double> pairs;
  for (size_t i = 0; i < ours.size(); ++i) pairs.push_back(peers[i] / ours[i]);
  const auto [min, max] = std::minmax_element(pairs.begin(), pairs.end());
  return {Median(peers) / Median(ours), *min, *max};
}

}  // namespace tandem
