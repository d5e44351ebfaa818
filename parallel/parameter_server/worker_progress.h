// Bounded staleness (stale synchronous parallel): how far each worker of a
// parameter server has come, and who may go on.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_PROGRESS_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// No bound: workers never wait for each other.
inline constexpr int64_t kUnboundedStaleness = -1;

// Counts pushes. Steps count from 1: a worker's k-th push is that of its step
// k. It may begin a step while it has done at most `max_staleness` more than
// the slowest living worker (Ho et al., "More effective distributed ML via a
// stale synchronous parallel parameter server", NIPS 2013); with 0 all are in
// the same step. Pure arithmetic; not thread-safe.
class WorkerProgress {
 public:
  // Requires workers >= 1 and max_staleness >= 0 or kUnboundedStaleness.
  WorkerProgress(int workers, int64_t max_staleness);

  // What a push that says it is of `step` is.
  enum class Push {
    kNext,       // the one that is due
    kDuplicate,  // has been here before: to be applied no second time
    kGap,        // some before it are missing
  };
  Push Classify(int worker, int64_t step) const;

  // The push that was due has come.
  void Advance(int worker) { ++pushed_[static_cast<size_t>(worker)]; }
  // Gone for good: nobody waits for it any more.
  void Drop(int worker) { lives_[static_cast<size_t>(worker)] = false; }
  // All have done so many.
  void ResumeAt(int64_t steps);

  bool MayGoOn(int worker) const;

  int workers() const { return static_cast<int>(pushed_.size()); }
  int living() const;
  bool lives(int worker) const { return lives_[static_cast<size_t>(worker)]; }
  int64_t pushed(int worker) const {
    return pushed_[static_cast<size_t>(worker)];
  }
  // The fewest steps that a living worker has done; -1: nobody lives.
  int64_t slowest() const;
  // The most that any has done, whether it lives or not.
  int64_t fastest() const;

 private:
  int64_t max_staleness_;
  std::vector<int64_t> pushed_;
  std::vector<bool> lives_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_WORKER_PROGRESS_H_
