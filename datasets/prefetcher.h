// Reads ahead on threads of its own, and hands out in order.

#ifndef TANDEM_DATASETS_PREFETCHER_H_
#define TANDEM_DATASETS_PREFETCHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/model/batch.h"

namespace tandem {

// Batches 0, 1, 2, ... of a round, read by several threads and taken by one.
// Whatever the number of threads, they come in order. `Start` and `Take` are
// for one thread.
class Prefetcher {
 public:
  // Reads the batch with this number; called from several threads at once.
  using Read = std::function<absl::StatusOr<Batch>(int64_t number)>;

  // At most `ahead` batches are read, or being read, before they are taken.
  // Both numbers are at least 1.
  Prefetcher(int64_t threads, int64_t ahead);

  // Waits only for the reads that are under way.
  ~Prefetcher();

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Begins a round of `count` batches. What is left of the last one is dropped.
  void Start(Read read, int64_t count);

  // The next batch, or what went wrong in reading it; nothing if it is not
  // there in time (it can then be asked for again). Requires that batches are
  // left in the round.
  std::optional<absl::StatusOr<Batch>> Take(absl::Duration timeout);

 private:
  void Work();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsNextReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t ahead_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  Read read_ ABSL_GUARDED_BY(mutex_);
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_to_read_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_to_take_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, absl::StatusOr<Batch>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_PREFETCHER_H_
