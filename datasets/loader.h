// Batches of a data set, in the sampler's order.

#ifndef TANDEM_DATASETS_LOADER_H_
#define TANDEM_DATASETS_LOADER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/model/batch.h"
#include "datasets/dataset.h"
#include "datasets/distributed_sampler.h"

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

struct LoaderOptions {
  int64_t batch_size = 1;  // samples of one replica
  // Leaves out the epoch's last batch if it is shorter than the others.
  bool drop_last = false;
  // Threads that read ahead; 0: `Next` reads, in its caller's thread.
  int64_t workers = 0;
  int64_t prefetch_factor = 2;  // batches that each worker is ahead
  // Copies batches to page-locked memory, from which a GPU fetches faster. Of
  // no effect where there is no GPU.
  bool pin_memory = false;
  absl::Duration timeout = absl::Minutes(5);  // of the wait for a worker
  // What this rank has a use for; the rest of its batches is undefined. Without
  // any, batches are sizes alone, and no sample is read.
  BatchParts parts = {};
};

// What one replica gets of a global batch. An error that names both numbers if
// the replicas cannot get equal shares.
absl::StatusOr<int64_t> BatchSizePerReplica(int64_t global_batch_size,
                                            int64_t data_degree);

// torch.utils.data.DataLoader for this rank's replica:
//
//   loader->StartEpoch(epoch);
//   for (;;) {
//     TANDEM_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader->Next());
//     if (!batch) break;
//     ...
//   }
//
// The sequence of batches does not depend on the number of workers. The sampler
// is shared: what its other owners do to it (set_epoch, Restore) holds from the
// next `StartEpoch()` on. A sampler with `even = false` makes this a loader for
// evaluation: over all ranks, every sample once. If it slices, too, all ranks
// have as many batches, of which the last may be empty.
//
// To resume: sampler->Restore(state), then `StartEpoch()` without a number.
//
// For one thread at a time. Can be destroyed at any moment: it then waits only
// for the calls of Dataset::GetInEpoch that are under way.
class Loader {
 public:
  // An error if a number in `options` makes no sense, if the sampler's length
  // is not the data set's, or if the sampler slices other batches than these.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(
      std::shared_ptr<const Dataset> dataset,
      std::shared_ptr<DistributedSampler> sampler,
      const LoaderOptions& options);

  // Begins at the sampler's state. Batches that were read ahead are dropped.
  void StartEpoch();

  // Begins at the beginning of `epoch`.
  void StartEpoch(int64_t epoch);

  // The next batch; nothing at the end of the epoch. Errors name the batch and
  // its first sample: the data set's, which is then returned until the next
  // `StartEpoch`, and DeadlineExceeded when a worker is late, after which the
  // caller can try again.
  absl::StatusOr<std::optional<Batch>> Next();

  // How many batches there are from where `StartEpoch` began.
  int64_t num_batches() const;

  // Where the job stands after the batches that `Next` returned (not those that
  // were read ahead), for a checkpoint; the same on every rank that has taken
  // as many. When all were returned, it is the end of the epoch, drop_last or
  // not.
  SamplerState state() const;

 private:
  // What a round of reading needs. A late worker may still hold an old one.
  struct Plan {
    SamplerState start;
    std::vector<int64_t> indices;  // this rank's samples
    int64_t batches = 0;
  };

  Loader(std::shared_ptr<const Dataset> dataset,
         std::shared_ptr<DistributedSampler> sampler,
         const LoaderOptions& options);

  int64_t CountBatches(const std::vector<int64_t>& indices) const;
  absl::Span<const int64_t> BatchIndices(const Plan& plan,
                                         int64_t number) const;
  absl::StatusOr<Batch> Read(const Plan& plan, int64_t number) const;
  absl::StatusOr<Batch> Take();

  const std::shared_ptr<const Dataset> dataset_;
  const std::shared_ptr<DistributedSampler> sampler_;
  const LoaderOptions options_;
  std::shared_ptr<const Plan> plan_;  // null before the first epoch
  int64_t delivered_ = 0;             // batches of this round
  absl::Status failure_;              // of this round
  // Last, so that its threads end before what they use.
  std::unique_ptr<Prefetcher> prefetcher_;  // null without workers
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_LOADER_H_
