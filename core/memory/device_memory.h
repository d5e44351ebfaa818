// Device memory statistics (torch.cuda.memory_stats), of any kind of device.

#ifndef TANDEM_CORE_MEMORY_DEVICE_MEMORY_H_
#define TANDEM_CORE_MEMORY_DEVICE_MEMORY_H_

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/device/memory_category.h"

namespace tandem {

// Bytes in use, by category (index: MemoryCategory) and together.
struct MemoryUse {
  int64_t total = 0;
  std::array<int64_t, kMemoryCategories> by_category = {};

  // `bytes` more of `category`; fewer if negative.
  void Add(MemoryCategory category, int64_t bytes) {
    total += bytes;
    by_category[static_cast<size_t>(category)] += bytes;
  }
};

struct MemoryStatistics {
  MemoryUse now;
  // When the most was in use, and what it was for then.
  MemoryUse peak;

  // Call when `now` has grown.
  void NotePeak() {
    if (now.total > peak.total) peak = now;
  }
};

// "parameters 40 MiB, activations 3.5 MiB": what there is, most first.
std::string DescribeUse(const MemoryUse& use);

// Allocation statistics: memory by category of a caching allocator of
// LibTorch's, from the entries of its trace
// (torch.cuda.memory._record_memory_history).

// Thread-safe. Bytes are those that were asked for, without what the allocator
// rounds up; in use until the allocator may give them to somebody else, which
// is later than their tensor's end where another stream uses them.
class AllocationStatistics {
 public:
  using Entry = c10::CachingDeviceAllocator::TraceEntry;

  // What has been allocated, charged to the calling thread's CategoryOfResults,
  // or given back; or that there was no memory. Allocations that it was not
  // told of are not missed.
  void Note(const Entry& entry);

  // The statistics of a device; zeros for one that it has been told nothing of.
  MemoryStatistics Of(int device) const;

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
    MemoryStatistics statistics;
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

struct DeviceMemory {
  MemoryStatistics statistics;
  // By whom: categories are known.
  bool has_categories = false;
  // What LibTorch's caching allocator has taken from the device, now and at
  // most, in bytes: at least what is in use of it. 0: there is none.
  int64_t reserved = 0;
  int64_t peak_reserved = 0;
  // Memory of the whole device, whoever uses it; 0: not known.
  int64_t free = 0;
  int64_t total = 0;
};

// Registers statistics by category of devices of a kind, which `statistics`
// gives by index. For the code that keeps them; once. Thread-safe.
using StatisticsFunction = MemoryStatistics (*)(int device);
void RegisterMemoryStatistics(c10::DeviceType type,
                              StatisticsFunction statistics);

// What is known of a device's memory: by its registered statistics; without
// them by LibTorch's caching allocator (c10::DeviceAllocator), all of it
// `other`. Nothing for the CPU and where there is neither. Thread-safe.
std::optional<DeviceMemory> MemoryOf(c10::Device device);

// "12 MiB: parameters 8 MiB, other 4 MiB; 20 MiB of 80 GiB reserved".
std::string DescribePeak(const DeviceMemory& memory);

// Records all GPUs' memory by category, from here on: MemoryOf then gives it,
// and has out-of-memory errors tell by category what was held. For programs,
// when CUDA is in use and before tensors are made; nothing in builds without
// CUDA. Costs a lock and an entry of a table for each allocation.
void RecordGpuMemory();

}  // namespace tandem

#endif  // TANDEM_CORE_MEMORY_DEVICE_MEMORY_H_
