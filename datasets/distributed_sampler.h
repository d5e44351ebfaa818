// Distributed sampler: which samples a replica sees, in which order.

#ifndef TANDEM_DATASETS_DISTRIBUTED_SAMPLER_H_
#define TANDEM_DATASETS_DISTRIBUTED_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Where a job stands among its samples; the same on every rank, and of use to
// any number of ranks.
struct SamplerState {
  int64_t epoch = 0;
  // How many of the epoch's permutation all replicas together have taken.
  int64_t position = 0;
};

inline bool operator==(const SamplerState& a, const SamplerState& b) {
  return a.epoch == b.epoch && a.position == b.position;
}

struct DistributedSamplerOptions {
  int64_t num_replicas = 1;
  int64_t rank = 0;  // in [0, num_replicas)
  bool shuffle = true;
  // A negative seed of PyTorch's is its two's complement here. Only the low 32
  // bits of seed + epoch matter, as in PyTorch.
  uint64_t seed = 0;
  // What PyTorch does with a length that num_replicas does not divide: true
  // drops the tail, false repeats samples from the epoch's beginning.
  bool drop_last = false;
  // Not in PyTorch. False: every sample exactly once, nothing repeated or
  // dropped, so that numbers of samples may differ by one from rank to rank:
  // for evaluation, whose metrics must not count padding. Excludes drop_last.
  bool even = true;
  // Not in PyTorch. 0: the permutation is dealt card by card. Else the number
  // of samples in a global batch, which num_replicas must divide: each global
  // batch is a slice of the permutation, of which replica r gets the r-th part
  // in one piece. So what a batch has, and in which order, does not depend on
  // the number of replicas. Where the epoch's end leaves less than a batch,
  // drop_last drops it, and even = false cuts it where a whole batch is cut, so
  // that it looks like one whose end is missing: the first replicas have as
  // many samples as ever, one has fewer, and the others none. One of the two is
  // required, as padding depends on the number of replicas.
  int64_t slices_of = 0;
};

// torch.utils.data.DistributedSampler, index for index, which can also stop
// and go on with another number of replicas.
//
// The epoch is a permutation of the data set, dealt card by card: replica r
// gets entries r, r + num_replicas, ... (or in slices: see slices_of). Replicas
// are in step when each has taken equally many, and the job then stands at one
// position of the permutation. A job that goes on from there, on as many
// replicas or not, deals the rest of the same permutation. So every sample is
// seen once in the epoch whatever the changes, apart from the end: with
// padding, up to
// num_replicas - 1 samples (of the last number of replicas) come twice; with
// drop_last, as many are left out.
//
// It cannot be copied: a loader shares it (LibTorch's copies it, and set_epoch
// is lost, https://github.com/pytorch/pytorch/issues/73141). Not thread-safe.
class DistributedSampler {
 public:
  // A data set of `length` samples, in epoch 0, at its beginning. An error if
  // the rank is not in [0, num_replicas), or the length is negative.
  static absl::StatusOr<std::unique_ptr<DistributedSampler>> Create(
      int64_t length, const DistributedSamplerOptions& options);

  DistributedSampler(const DistributedSampler&) = delete;
  DistributedSampler& operator=(const DistributedSampler&) = delete;

  // Goes to the beginning of an epoch. Call it before each, on every rank; else
  // the next one has the same order.
  void set_epoch(int64_t epoch) { state_ = {epoch, 0}; }

  int64_t epoch() const { return state_.epoch; }
  int64_t length() const { return length_; }
  const DistributedSamplerOptions& options() const { return options_; }

  // How many samples this rank gets from the position to the end of the epoch:
  // the length of `Indices()`.
  int64_t num_samples() const;

  // This rank's samples from the position to the end of the epoch.
  std::vector<int64_t> Indices() const;

  SamplerState state() const { return state_; }

  // Goes to a state, perhaps of a job with another number of replicas. An error
  // if it cannot be of a data set of this length.
  absl::Status Restore(const SamplerState& state);

  // Where the job stands when, from `start` on, every replica has taken
  // `samples` of its indices. With slices_of it stands between two global
  // batches: one that was begun counts as taken.
  SamplerState After(const SamplerState& start, int64_t samples) const;

 private:
  DistributedSampler(int64_t length, const DistributedSamplerOptions& options)
      : length_(length), options_(options) {}

  // Where a replica's samples are among a batch.
  struct Part {
    int64_t begin = 0;
    int64_t size = 0;
  };
  bool slices() const { return options_.slices_of > 0; }
  // This rank's part of a global batch of which there are `samples`.
  Part RankPart(int64_t samples) const;
  std::vector<int64_t> Slices(const std::vector<int64_t>& permutation) const;

  // The epoch's order of the whole data set.
  std::vector<int64_t> Permutation() const;

  const int64_t length_;
  const DistributedSamplerOptions options_;
  SamplerState state_;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_DISTRIBUTED_SAMPLER_H_
