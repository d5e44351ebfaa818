// Bucket memory: what a communication hook keeps for each bucket from one step
// to the next.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_BUCKET_MEMORY_H_
#define TANDEM_PARALLEL_COMM_HOOKS_BUCKET_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm_hooks/communication_hook.h"

namespace tandem {

// One T a bucket. It is that bucket's as long as the bucket at its index holds
// the same parameters in the same buffer: once the buckets are rebuilt, what
// was kept for the old ones is let go as the new ones are kept.
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

#endif  // TANDEM_PARALLEL_COMM_HOOKS_BUCKET_MEMORY_H_
