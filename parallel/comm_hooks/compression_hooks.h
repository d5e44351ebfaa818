// Compression hooks: communication hooks that send gradients in fewer bits, and
// what a hook keeps for each bucket from one step to the next.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_COMPRESSION_HOOKS_H_
#define TANDEM_PARALLEL_COMM_HOOKS_COMPRESSION_HOOKS_H_

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm_hooks/communication_hook.h"

namespace tandem {

// Hooks keep what they need from step to step, memory included, in themselves:
// one hook serves one reducer. Copies of a hook share it.

// The mean, without compression: what a reducer without a hook does.
// (PyTorch's allreduce_hook. That divides by the number of ranks, where DDP
// without a hook multiplies by its inverse, as is done here: the bits are the
// same for 1, 2, 4, ... ranks.)
CommunicationHook AllReduceHook();

// PyTorch's fp16_compress_hook and bf16_compress_hook: gradients are cast to
// half precision, divided by the number of ranks, summed in half precision and
// cast back. Half the bytes travel. float16 keeps 11 significant bits and
// overflows at 65504, which shows as an infinite gradient; bfloat16 keeps 8
// bits and float's range. Both Gloo and ranks of one host sum both types as
// they are: nothing is widened on the way.
//
// Gradients that have the dtype already are only averaged.
CommunicationHook Fp16CompressHook();
CommunicationHook Bf16CompressHook();

// The one of that dtype: kHalf or kBFloat16.
CommunicationHook CompressHook(c10::ScalarType dtype);

// PyTorch's fp16_compress_wrapper and bf16_compress_wrapper: `hook` sees the
// bucket in half precision, and what it leaves there is cast back. So
// Fp16CompressHook() is Fp16CompressWrapper() of a hook that takes the mean.
CommunicationHook Fp16CompressWrapper(CommunicationHook hook);
CommunicationHook Bf16CompressWrapper(CommunicationHook hook);

// What a hook keeps for each bucket from one step to the next: one T a bucket.
// It is that bucket's as long as the bucket at its index holds the same
// parameters in the same buffer: once the buckets are rebuilt, what was kept
// for the old ones is let go as the new ones are kept.
//
// Not thread-safe.
template <typename T>
class BucketMemory {
 public:
  // Null when nothing is kept for this bucket.
  T* Find(const GradBucket& bucket) {
    const auto found = entries_.find(bucket.index);
    if (found == entries_.end()) return nullptr;
    const Entry& entry = found->second;
    const bool same = entry.data == bucket.buffer.const_data_ptr() &&
                      entry.numel == bucket.buffer.numel() &&
                      entry.dtype == bucket.buffer.scalar_type() &&
                      entry.names == bucket.names;
    return same ? &found->second.value : nullptr;
  }

  // Keeps `value`, in the place of what was kept for another bucket at this
  // index. The address stays good until the next Keep() of this index.
  T* Keep(const GradBucket& bucket, T value) {
    if (bucket.is_last) {  // there may have been more before a rebuild
      entries_.erase(entries_.upper_bound(bucket.index), entries_.end());
    }
    Entry& entry = entries_[bucket.index];
    entry = {bucket.names, bucket.buffer.const_data_ptr(),
             bucket.buffer.numel(), bucket.buffer.scalar_type(),
             std::move(value)};
    return &entry.value;
  }

  void Clear() { entries_.clear(); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<std::string> names;
    const void* data = nullptr;
    int64_t numel = 0;
    at::ScalarType dtype = at::kFloat;
    T value;
  };

  std::map<int64_t, Entry> entries_;  // by GradBucket::index
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_COMPRESSION_HOOKS_H_
