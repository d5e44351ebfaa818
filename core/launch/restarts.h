// Restarts of a job's ranks: how often and how soon, and what ended each
// attempt.

#ifndef TANDEM_CORE_LAUNCH_RESTARTS_H_
#define TANDEM_CORE_LAUNCH_RESTARTS_H_

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_RESTARTS_H_
