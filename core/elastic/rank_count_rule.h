// Rank count rule: with how many ranks one launcher's elastic job goes on after
// an attempt has failed. A function of what happened, never of time.

#ifndef TANDEM_CORE_ELASTIC_RANK_COUNT_RULE_H_
#define TANDEM_CORE_ELASTIC_RANK_COUNT_RULE_H_

#include <optional>
#include <string>
#include <utility>

#include "core/elastic/rank_counts.h"

namespace tandem {

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

  // Of the attempt that comes.
  int ranks() const { return ranks_; }

  // Takes the end of an attempt with ranks() ranks. Why ranks() is another now,
  // or why it should be fewer and is not; empty: nothing changes.
  std::string NoteEnd(const FailedAttempt& attempt);

 private:
  std::string GoOnWith(int most, const std::string& why);

  const RankCounts counts_;
  int ranks_;
  std::string progress_;
  std::optional<int> last_dead_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_RANK_COUNT_RULE_H_
