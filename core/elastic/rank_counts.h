// Rank counts: with how many ranks an elastic job can run, within its limits
// and as its layout can be cut.

#ifndef TANDEM_CORE_ELASTIC_RANK_COUNTS_H_
#define TANDEM_CORE_ELASTIC_RANK_COUNTS_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/elastic/rank_limits.h"

namespace tandem {

// A value; at least one count.
class RankCounts {
 public:
  // Why a job cannot run on so many ranks; null: it can on any number.
  using Fits = std::function<absl::Status(int ranks)>;

  // Multiples of `step` (ranks that come and go together) from limits.least to
  // limits.most. limits.elastic(); step divides limits.most, or limits.most is
  // reached by counting down from it. InvalidArgument where limits.most does
  // not fit, or, of several, no other does.
  static absl::StatusOr<RankCounts> Of(const RankLimits& limits, int step,
                                       const Fits& fits);

  int most() const { return counts_.back(); }
  // The largest that is at most `ranks`.
  std::optional<int> AtMost(int ranks) const;
  // "2, 4 or 6".
  std::string ToString() const;

 private:
  explicit RankCounts(std::vector<int> counts) : counts_(std::move(counts)) {}

  std::vector<int> counts_;  // rising
};

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_RANK_COUNTS_H_
