// Allocation books: memory by category of a caching allocator of LibTorch's,
// from the entries of its trace (torch.cuda.memory._record_memory_history).

#ifndef TANDEM_CORE_MEMORY_ALLOCATION_BOOKS_H_
#define TANDEM_CORE_MEMORY_ALLOCATION_BOOKS_H_

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/memory/memory_use.h"

namespace tandem {

// Thread-safe. Bytes are those that were asked for, without what the allocator
// rounds up; in use until the allocator may give them to somebody else, which
// is later than their tensor's end where another stream uses them.
class AllocationBooks {
 public:
  using Entry = c10::CachingDeviceAllocator::TraceEntry;

  // What has been allocated, charged to the calling thread's CategoryOfResults,
  // or given back; or that there was no memory. Allocations that it was not
  // told of are not missed.
  void Note(const Entry& entry);

  // Of a device that it has been told nothing of: nothing.
  MemoryBooks Of(int device) const;

  // What a device held when an allocation last failed, and what to do:
  // "cuda:0 held 70 GiB then (parameters 40 GiB, ...): take ..." where `type`
  // is "cuda". Told once, for it says nothing of another error: empty then, and
  // where none has failed.
  std::string TakeFailure(const std::string& type);

 private:
  struct Held {
    int64_t bytes = 0;
    MemoryCategory category = MemoryCategory::kOther;
  };
  struct Device {
    MemoryBooks books;
    std::unordered_map<size_t, Held> held;  // by address
  };

  void Allocate(Device& device, size_t address, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Free(Device& device, size_t address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<int, Device> devices_ ABSL_GUARDED_BY(mutex_);
  int failed_ ABSL_GUARDED_BY(mutex_) = -1;  // the device, -1: none
  MemoryUse at_failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_ALLOCATION_BOOKS_H_
