#include "tools/bench/compare_losses.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace tandem {

absl::Status CompareLosses(const std::vector<double>& ours,
                           const std::string& peer,
                           const std::vector<double>& peers) {
  if (ours.size() != peers.size()) {
    return absl::InternalError(absl::StrFormat(
        "tandem gave %d losses, %s %d", ours.size(), peer, peers.size()));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    // False for NaN.
    if (std::abs(ours[i] - peers[i]) <= kLossTolerance * std::abs(peers[i])) {
      continue;
    }
    return absl::InternalError(absl::StrFormat(
        "step %d: tandem's loss is %.9g, %s's is %.9g: they do not train the "
        "same, so their times say nothing",
        i + 1, ours[i], peer, peers[i]));
  }
  return absl::OkStatus();
}

}  // namespace tandem
