#include "tools/bench/measure/median.h"

#include <glog/logging.h>

#include <algorithm>

#include "core/base/status_macros.h"

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

double MegabytesPerSecond(int64_t bytes, const std::vector<double>& ms) {
  return static_cast<double>(bytes) / 1e3 / Median(ms);
}

Ratio PairedRatio(const std::vector<double>& peers,
                  const std::vector<double>& ours) {
  CHECK_EQ(peers.size(), ours.size());
  std::vector<double> pairs;
  for (size_t i = 0; i < ours.size(); ++i) pairs.push_back(peers[i] / ours[i]);
  const auto [min, max] = std::minmax_element(pairs.begin(), pairs.end());
  return {Median(peers) / Median(ours), *min, *max};
}

absl::Status TakeTurns(int rounds,
                       absl::FunctionRef<absl::StatusOr<double>()> our_time,
                       absl::FunctionRef<absl::StatusOr<double>()> peer_time,
                       std::vector<double>& ours, std::vector<double>& peers) {
  for (int round = 0; round < rounds; ++round) {
    for (const bool is_ours : {round % 2 == 0, round % 2 != 0}) {
      TANDEM_ASSIGN_OR_RETURN((is_ours ? ours : peers).emplace_back(),
                              is_ours ? our_time() : peer_time());
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
