// A data set of numbers, and short ways to load it.

#ifndef TANDEM_TESTS_DATASETS_NUMBERS_H_
#define TANDEM_TESTS_DATASETS_NUMBERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "datasets/dataset.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"

namespace tandem {

using Indices = std::vector<int64_t>;

// Sample i is the number i.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return {}; }
  int64_t classes() const override { return size_; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override;

  // Calls of Get, and samples of which it was asked for the part.
  int64_t reads() const { return reads_; }
  int64_t inputs_read() const { return inputs_read_; }
  int64_t targets_read() const { return targets_read_; }

  // Samples that make Get fail, throw, throw as LibTorch does, or wait for
  // `released`.
  int64_t bad_sample = -1;
  int64_t throwing_sample = -1;
  int64_t refusing_sample = -1;
  int64_t late_sample = -1;
  mutable absl::Notification released;

 private:
  const int64_t size_;
  mutable std::atomic<int64_t> reads_{0};
  mutable std::atomic<int64_t> inputs_read_{0};
  mutable std::atomic<int64_t> targets_read_{0};
};

// Both fail the test, and end it, on an error.
std::shared_ptr<DistributedSampler> MakeSampler(
    int64_t length, const DistributedSamplerOptions& options = {});
std::unique_ptr<Loader> MakeLoader(std::shared_ptr<const Dataset> dataset,
                                   std::shared_ptr<DistributedSampler> sampler,
                                   const LoaderOptions& options);

// The order of all samples in epoch 3, as one replica sees it.
Indices WholeEpoch(int64_t length);

// Not shuffled.
DistributedSamplerOptions InOrder();

LoaderOptions BatchOptions(int64_t size, int64_t workers = 0);

// The next batch's samples; empty at the end of the epoch.
Indices Take(Loader& loader);
std::vector<Indices> TakeAll(Loader& loader);
std::vector<Indices> Epoch(Loader& loader, int64_t epoch);

Indices Flat(const std::vector<Indices>& batches);
Indices Sorted(Indices indices);
// 0 to length - 1.
Indices Range(int64_t length);

}  // namespace tandem

#endif  // TANDEM_TESTS_DATASETS_NUMBERS_H_
