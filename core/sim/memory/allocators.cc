#include "core/sim/memory/allocators.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <map>
#include <mutex>

#include "core/memory/result_category.h"
#include "core/sim/memory/block.h"
#include "core/sim/streams/device_guard.h"

namespace tandem {
namespace sim {
namespace {

class HostAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return AllocateOnHost(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &ReleaseBlock; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

class SimAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return AllocateOnDevice(bytes, CurrentDevice(), CategoryOfResults());
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(ToHostPointer(to), ToHostPointer(from), bytes);
  }
};

// Where pinned memory lies: [first, first + bytes).
struct PinnedRanges {
  std::mutex mutex;
  std::map<uintptr_t, size_t> ranges;
};

PinnedRanges& Pinned() {
  static auto* pinned = new PinnedRanges;  // tensors outlive static objects
  return *pinned;
}

void ReleasePinned(void* data) {
  {
    std::lock_guard<std::mutex> lock(Pinned().mutex);
    Pinned().ranges.erase(reinterpret_cast<uintptr_t>(data));
  }
  ReleaseBlock(data);
}

class PinnedHostAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = AllocateOnHost(bytes);
    void* data = memory.release_context();
    if (data == nullptr) return memory;
    std::lock_guard<std::mutex> lock(Pinned().mutex);
    Pinned().ranges[reinterpret_cast<uintptr_t>(data)] = bytes;
    return c10::DataPtr(data, data, &ReleasePinned, c10::DeviceType::CPU);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &ReleasePinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// Allocators are never destroyed: tensors may outlive static objects.
template <typename T>
c10::Allocator* Forever() {
  static auto* allocator = new T;
  return allocator;
}

}  // namespace

void InstallAllocators() {
  TakeBlocksFrom(c10::GetCPUAllocator());
  // A priority above that of the allocator that was there.
  c10::SetCPUAllocator(Forever<HostAllocator>(), /*priority=*/255);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, DeviceAllocator());
}

c10::Allocator* DeviceAllocator() { return Forever<SimAllocator>(); }

c10::Allocator* PinnedAllocator() { return Forever<PinnedHostAllocator>(); }

bool IsPinned(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard<std::mutex> lock(Pinned().mutex);
  auto after = Pinned().ranges.upper_bound(address);
  if (after == Pinned().ranges.begin()) return false;
  --after;
  return address < after->first + after->second;
}

}  // namespace sim
}  // namespace tandem
