// Reducer buckets: gradients that travel together, in what order, and where
// each parameter is; the options of a reducer, and the streams on which
// gradients are made.

#ifndef TANDEM_PARALLEL_DDP_REDUCER_BUCKETS_H_
#define TANDEM_PARALLEL_DDP_REDUCER_BUCKETS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

// The streams on which autograd accumulates gradients: of each device that has
// streams, the one that was current when its buffer was made.
std::vector<c10::Stream> GradientStreams(
    const std::vector<FlatBuffer*>& buffers);

// The first buffer's device; the CPU without buffers.
c10::Device DeviceOfGradients(const std::vector<FlatBuffer*>& buffers);

// While this object lives, the calling thread works on GradientStreams, behind
// the gradients there are. Autograd sees to that only for the device whose
// gradient it has come to; what becomes due then may be another device's. What
// the thread's own streams are given later runs behind its work.
class GradientStreamsGuard {
 public:
  explicit GradientStreamsGuard(const std::vector<FlatBuffer*>& buffers);
  ~GradientStreamsGuard();
  GradientStreamsGuard(const GradientStreamsGuard&) = delete;
  GradientStreamsGuard& operator=(const GradientStreamsGuard&) = delete;

 private:
  const std::vector<c10::Stream> streams_;
  std::vector<c10::Stream> own_;
  std::optional<c10::MultiStreamGuard> guard_;
};

// How many gradients travel together. A bucket is full when it holds its limit
// in bytes, or more. The limits are those of the first bucket of a buffer, of
// the second, ...; the last one serves all further ones.
struct BucketOptions {
  // PyTorch's: 1 MiB, so that the first all-reduce starts early, then 25 MiB.
  std::vector<int64_t> limits = {1 << 20, 25 << 20};
};

// Which gradients are averaged, and when.
struct ReducerOptions {
  BucketOptions buckets;
  // DistributedDataParallel's options of these names.
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool skip_all_reduce_unused_params = false;
  // Is what no rank uses in the first step left out of all later ones?
  bool retires_unused() const {
    return static_graph || skip_all_reduce_unused_params;
  }
  // Each of these buffers is reduced whole, when the parameter at position
  // `delayed_until` is ready.
  std::vector<FlatBuffer*> delayed;
  int64_t delayed_until = -1;
  // Called when a backward begins, on its thread, and must have Finish() called
  // at its end. Null: whoever drives the reducer calls it.
  std::function<void()> on_begin;
};

// Some neighbours of one flat buffer: its gradients are a slice.
struct Bucket {
  FlatBuffer* buffer;
  size_t first;  // its slots [first, end)
  size_t end;
  int64_t offset;  // elements [offset, offset + length), padding included
  int64_t length;
};

// Cuts every buffer into buckets, in the order of its slots, and puts the
// buckets of all buffers into the order in which they fill when gradients
// become ready in the order `rank_of` (by position: FlatSlot::position; as
// large as the greatest one requires). Every slot is in one bucket.
std::vector<Bucket> MakeBuckets(absl::Span<FlatBuffer* const> buffers,
                                const BucketOptions& options,
                                const std::vector<int64_t>& rank_of);

// Where the reducer finds a parameter and its gradient.
struct ParameterPlace {
  FlatBuffer* buffer = nullptr;  // null: not trained
  size_t id = 0;                 // FlatSlot's
  bool delayed = false;
  size_t bucket = 0;
  bool dead = false;  // known to be used on no rank

  // Require a trained parameter; buckets may be rebuilt between two calls.
  size_t index() const { return buffer->index_of(id); }
  const FlatSlot& slot() const { return buffer->slots()[index()]; }
  bool has_gradient() const { return buffer->has_gradient(index()); }
};

// Buckets of some flat buffers, which hold parameters at distinct positions.
// They are first made in the order of the buffers, and may be rebuilt once, in
// the order in which gradients became ready. Not thread-safe.
class ReducerBuckets {
 public:
  // `buffers`, and those that are delayed, must outlive it.
  ReducerBuckets(std::vector<FlatBuffer*> buffers, ReducerOptions options);

  size_t size() const { return buckets_.size(); }
  const Bucket& operator[](size_t index) const { return buckets_[index]; }
  std::vector<Bucket>::const_iterator begin() const { return buckets_.begin(); }
  std::vector<Bucket>::const_iterator end() const { return buckets_.end(); }
  // Is a bucket of parameters that wait for another's gradient?
  bool IsDelayed(size_t index) const;
  // A bucket as a hook sees it; without what a hook alone looks at, the
  // parameters, unless it is `for_hook`.
  GradBucket Describe(size_t index, bool for_hook) const;
  // "bucket 1 (fc.weight) of step 4".
  std::string Purpose(size_t index, int64_t step) const;

  const std::vector<ParameterPlace>& places() const { return places_; }
  // Names by position, of what does not wait for another; empty: not trained.
  std::vector<std::string> NamesByPosition() const;
  // All flat buffers, delayed ones last; and the first one's device, or the
  // CPU.
  const std::vector<FlatBuffer*>& buffers() const { return all_; }
  c10::Device device() const;
  // FlatBuffer's, of all of them.
  absl::Status CheckParameters() const;
  // Gradients become zero of those parameters without one for which `which`
  // holds: what this rank did not use adds nothing to the others' mean.
  void ZeroUnused(
      absl::FunctionRef<bool(const ParameterPlace&, size_t position)> which)
      const;

  // The parameter is known to be used on no rank.
  void Retire(size_t position) { places_[position].dead = true; }
  // Positions as gradients became ready, which goes into the next Assign or
  // Rebuild.
  void set_order(std::vector<int64_t> order) { order_ = std::move(order); }
  // Makes the buckets, for the first time.
  void Assign();
  // Makes them anew, once, in rank 0's order; nothing is done where a flat
  // buffer keeps its own (FlatBuffer::keeps_order). Collective.
  absl::Status Rebuild(Communicator& group);
  bool is_rebuilt() const { return rebuilt_; }

 private:
  std::vector<int64_t> RankOfPositions() const;
  void TrimDead(Bucket* bucket) const;
  void InsertDelayed(const std::vector<int64_t>& rank_of);

  std::vector<FlatBuffer*> at_once_;
  std::vector<FlatBuffer*> all_;
  const ReducerOptions options_;
  std::vector<ParameterPlace> places_;  // by position
  std::vector<Bucket> buckets_;
  std::vector<int64_t> order_;
  bool rebuilt_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REDUCER_BUCKETS_H_
