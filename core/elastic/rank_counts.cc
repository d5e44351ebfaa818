#include "core/elastic/rank_counts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {

absl::StatusOr<RankCounts> RankCounts::Of(const RankLimits& limits, int step,
                                          const Fits& fits) {
  std::vector<int> counts;
  absl::Status last_refusal;
  for (int ranks = limits.most; ranks >= limits.least; ranks -= step) {
    const absl::Status fit = fits == nullptr ? absl::OkStatus() : fits(ranks);
    if (!fit.ok() && ranks == limits.most) return fit;
    if (fit.ok()) {
      counts.push_back(ranks);
    } else {
      last_refusal = fit;
    }
  }
  if (counts.size() == 1 && !last_refusal.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min_ranks=", limits.least, ": of ", limits.least, " to ",
        limits.most, " ranks this job can run on ", limits.most, " alone (",
        std::string(last_refusal.message()),
        "): give a lower --min_ranks, or leave it out"));
  }
  std::reverse(counts.begin(), counts.end());
  return RankCounts(std::move(counts));
}

std::optional<int> RankCounts::AtMost(int ranks) const {
  const auto above = std::upper_bound(counts_.begin(), counts_.end(), ranks);
  if (above == counts_.begin()) return std::nullopt;
  return *(above - 1);
}

std::string RankCounts::ToString() const {
  if (counts_.size() == 1) return absl::StrCat(counts_.front());
  return absl::StrCat(absl::StrJoin(counts_.begin(), counts_.end() - 1, ", "),
                      " or ", counts_.back());
}

}  // namespace tandem
