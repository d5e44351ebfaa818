// Replacements of ranks: how often and how soon those that die are started
// again while the others go on, and what ended each.

#ifndef TANDEM_CORE_LAUNCH_REPLACEMENTS_H_
#define TANDEM_CORE_LAUNCH_REPLACEMENTS_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/launch/restarts.h"

namespace tandem {

// Pure. Not thread-safe.
class Replacements {
 public:
  using Clock = std::chrono::steady_clock;

  // `most`: of all ranks together. `delay`: before the first; each further one
  // comes after twice as long as the one before, up to a minute.
  Replacements(int most, std::chrono::milliseconds delay)
      : restarts_(most, delay) {}

  int most() const { return restarts_.max_restarts(); }
  // Whether there is another one.
  bool Allows() const { return restarts_.Allows(done_ + 1); }
  // How many processes of this node's rank `local_rank` have died.
  int LifeOf(int local_rank) const;

  // That rank died at `now`, because of `cause`, and is due again when this
  // returns. Requires Allows().
  std::chrono::milliseconds NoteDeath(int local_rank, Clock::time_point now,
                                      const std::string& cause);
  // How many deaths were noted.
  int done() const { return done_; }
  // One that is not to be made up for.
  void NoteLast(const std::string& cause) { history_.push_back(cause); }
  // The cause of each death, in order.
  const std::vector<std::string>& history() const { return history_; }

  // When the next rank is due; none: nobody is.
  std::optional<Clock::time_point> NextDue() const;
  // A rank that is due at `now`, once; none: nobody is.
  std::optional<int> TakeDue(Clock::time_point now);

 private:
  Restarts restarts_;
  int done_ = 0;
  std::map<int, int> lives_;              // by local rank
  std::map<int, Clock::time_point> due_;  // the same
  std::vector<std::string> history_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_REPLACEMENTS_H_
