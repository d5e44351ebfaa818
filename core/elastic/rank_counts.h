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

namespace tandem {

// Rank limits: between how many ranks an elastic job may run, --min_ranks and
// --max_ranks; what torchrun's --nnodes=MIN:MAX is for nodes.

// All ranks of a job together, counted as processes. 1 <= least <= most where
// the job is elastic.
struct RankLimits {
  int least = 0;  // 0: the number of ranks never changes
  int most = 0;

  bool elastic() const { return least > 0; }
};

// What asks for ranks, as the user gave it.
struct RankRequest {
  std::optional<int> min_ranks;
  std::optional<int> max_ranks;
  int nnodes = 1;
  int nproc_per_node = 1;
  int max_restarts = 0;
};

// Without min_ranks: not elastic. Without max_ranks: as many as all nodes can
// start, of whole nodes where they are several. InvalidArgument, naming the
// flags, for limits that contradict each other or what else was given.
absl::StatusOr<RankLimits> ResolveRankLimits(const RankRequest& request);

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

// Rank count rule: with how many ranks one launcher's elastic job goes on after
// an attempt has failed. A function of what happened, never of time.

// - A rank that could not be started: at once as many as could be.
// - The same rank was the first to die in two attempts in a row, and no
//   progress (a checkpoint) came between the two deaths: the next fewer.
// - Progress came with fewer than the most: the most again.
//
// Where no fewer are allowed it is the same number again, and whoever restarts
// counts the attempts. Not thread-safe.
class RankCountRule {
 public:
  struct FailedAttempt {
    int started = 0;                // ranks that could be started
    std::optional<int> first_dead;  // of those that were all started
    // Names what the job would go on from now; another name is progress.
    std::string progress;
  };

  // `progress`: before the first attempt, which has counts.most() ranks.
  RankCountRule(RankCounts counts, std::string progress)
      : counts_(std::move(counts)),
        ranks_(counts_.most()),
        progress_(std::move(progress)) {}

  // The number of ranks of the attempt that comes.
  int ranks() const { return ranks_; }

  // Takes the end of an attempt with ranks() ranks. Why ranks() is another now,
  // or why it should be fewer and is not; empty: nothing changes.
  std::string NoteEnd(const FailedAttempt& attempt);

 private:
  std::string SetRanks(int most, const std::string& why);

  const RankCounts counts_;
  int ranks_;
  std::string progress_;
  std::optional<int> last_dead_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_RANK_COUNTS_H_
