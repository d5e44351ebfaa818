#include "tools/bench/comparison/losses.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem {

double LossTolerance(const std::string& dtype) {
  return dtype == "fp32" ? 1e-4 : 4e-3;
}

absl::Status CompareLosses(const std::vector<double>& ours,
                           const std::string& peer,
                           const std::vector<double>& peers, double tolerance) {
  if (ours.size() != peers.size()) {
    return absl::InternalError(absl::StrFormat(
        "tandem gave %d losses, %s %d", ours.size(), peer, peers.size()));
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    // False for NaN.
    if (std::abs(ours[i] - peers[i]) <= tolerance * std::abs(peers[i])) {
      continue;
    }
    return absl::InternalError(absl::StrFormat(
        "step %d: tandem's loss is %.9g, %s's is %.9g: they do not train the "
        "same, so their times say nothing",
        i + 1, ours[i], peer, peers[i]));
  }
  return absl::OkStatus();
}

absl::Status KnownLosses::Check(int microbatches, const std::string& peer,
                                const std::vector<double>& losses) const {
  const auto known = losses_.find(microbatches);
  if (known != losses_.end())
    return CompareLosses(known->second, peer, losses, tolerance_);
  return absl::InternalError(absl::StrCat("no losses to compare with for ",
                                          microbatches, " microbatches"));
}

absl::Status KnownLosses::Learn(int microbatches, const std::string& name,
                                const std::vector<double>& losses) {
  losses_.emplace(microbatches, losses);
  return Check(microbatches, name, losses);
}

}  // namespace tandem
