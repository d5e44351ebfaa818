// Restarts of a job's ranks: how often and how soon, and what ended each
// attempt.

#ifndef TANDEM_CORE_LAUNCH_RESTARTS_H_
#define TANDEM_CORE_LAUNCH_RESTARTS_H_

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/environment.h"

namespace tandem {

// Restart count: how often a launcher has started a job's ranks again, after
// one died, and how often it would; torchrun's TORCHELASTIC_RESTART_COUNT and
// TORCHELASTIC_MAX_RESTARTS.

struct RestartCount {
  int done = 0;  // 0 in the first attempt
  int most = 0;  // in all
};

// A rank's, from what its launcher set; nothing there: none, and none to come.
// InvalidArgument for what is no number from 0.
absl::StatusOr<RestartCount> ReadRestartCount(const Environment& env);

// Pure. Not thread-safe.
class Restarts {
 public:
  // `max_restarts`: torchrun's, of the whole job. `delay`: before the first.
  Restarts(int max_restarts, std::chrono::milliseconds delay)
      : max_restarts_(max_restarts), delay_(delay) {}

  // Attempt `attempt` (from 0) ended after `lasted`, because of `cause`.
  void NoteEnd(int attempt, std::chrono::duration<double> lasted,
               const std::string& cause);

  // What became of the ranks after the end that was noted last, if any was.
  void NoteChange(const std::string& change);

  // Whether there is an attempt of that number.
  bool Allows(int attempt) const { return attempt <= max_restarts_; }
  int max_restarts() const { return max_restarts_; }
  // There is an attempt of that number, whatever was allowed before.
  void Allow(int attempt) { max_restarts_ = std::max(max_restarts_, attempt); }

  // How long to wait before attempt `attempt` (from 1): `delay`, doubled for
  // each one before, a minute at most.
  std::chrono::milliseconds DelayBefore(int attempt) const;

  // A line for each end that was noted: "attempt 1 of 4, after 12.3 s: rank 1
  // ...; goes on with 2 ranks instead of 3: ...".
  const std::vector<std::string>& history() const { return history_; }

 private:
  int max_restarts_;
  const std::chrono::milliseconds delay_;
  std::vector<std::string> history_;
};

// Replacements of ranks: how often and how soon those that die are started
// again while the others go on, and what ended each.

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
  int RankLife(int local_rank) const;

  // Notes that the rank died at `now`, because of `cause`; it is due again when
  // this returns. Requires Allows().
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

#endif  // TANDEM_CORE_LAUNCH_RESTARTS_H_
