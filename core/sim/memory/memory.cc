#include "core/sim/memory/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"
#include "core/device/memory_category.h"
#include "core/sim/memory/block.h"
#include "core/sim/streams/device_guard.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

constexpr size_t kHoldersNamed = 5;

struct DeviceMemory {
  std::mutex mutex;
  MemoryStatistics statistics;
  int64_t cap = 0;
  Block* first = nullptr;
};

// Never destroyed: tensors of static duration are released late.
DeviceMemory& MemoryAt(int device) {
  static auto* devices = new std::array<DeviceMemory, kMostDevices>;
  return (*devices)[device];
}

// "12 MiB activations of aten::addmm (3 blocks)": sums over blocks of one
// operator and category, for single blocks of a large model are many.
std::string LargestHolders(const DeviceMemory& memory) {
  struct Sum {
    int64_t bytes = 0;
    int blocks = 0;
  };
  std::map<std::pair<std::string, MemoryCategory>, Sum> sums;
  for (const Block* each = memory.first; each != nullptr; each = each->next) {
    Sum& sum = sums[{each->made_by, each->category}];
    sum.bytes += static_cast<int64_t>(each->bytes);
    ++sum.blocks;
  }
  std::vector<std::pair<int64_t, std::string>> lines;
  for (const auto& [who, sum] : sums) {
    lines.emplace_back(
        sum.bytes,
        absl::StrCat(FormatBytes(sum.bytes), " ",
                     MemoryCategoryName(who.second), " of ",
                     who.first.empty() ? "no operator" : who.first, " (",
                     sum.blocks, sum.blocks == 1 ? " block)" : " blocks)"));
  }
  std::sort(lines.rbegin(), lines.rend());
  if (lines.size() > kHoldersNamed) lines.resize(kHoldersNamed);
  return absl::StrJoin(lines, ", ", [](std::string* out, const auto& line) {
    out->append(line.second);
  });
}

// The mutex is held.
void CheckFitsLocked(const DeviceMemory& memory, int device, size_t bytes) {
  const int64_t more = static_cast<int64_t>(bytes);
  if (memory.cap == 0 || memory.statistics.now.total + more <= memory.cap)
    return;
  TORCH_CHECK_WITH(OutOfMemoryError, false, "sim:", device,
                   " is out of memory: ", FormatBytes(more), " asked for, ",
                   FormatBytes(memory.statistics.now.total), " of ",
                   FormatBytes(memory.cap), " in use (",
                   DescribeUse(memory.statistics.now),
                   "); largest holders: ", LargestHolders(memory));
}

}  // namespace

MemoryStatistics DeviceMemoryStatistics(int device) {
  DeviceMemory& memory = MemoryAt(device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  return memory.statistics;
}

void ResetPeak(int device) {
  DeviceMemory& memory = MemoryAt(device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.statistics.peak = memory.statistics.now;
}

void SetCap(int device, int64_t bytes) {
  DeviceMemory& memory = MemoryAt(device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.cap = bytes;
}

void CheckFits(int8_t device, size_t bytes) {
  DeviceMemory& memory = MemoryAt(device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  CheckFitsLocked(memory, device, bytes);
}

int DeviceHolding(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (int device = 0; device < kMostDevices; ++device) {
    DeviceMemory& memory = MemoryAt(device);
    std::lock_guard<std::mutex> lock(memory.mutex);
    for (Block* each = memory.first; each != nullptr; each = each->next) {
      const auto first = reinterpret_cast<uintptr_t>(each->data());
      if (at >= first && at - first < each->bytes) return device;
    }
  }
  return kHost;
}

void Charge(Block& block) {
  DeviceMemory& memory = MemoryAt(block.device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  CheckFitsLocked(memory, block.device, block.bytes);
  memory.statistics.now.Add(block.category, static_cast<int64_t>(block.bytes));
  memory.statistics.NotePeak();
  block.next = memory.first;
  if (memory.first != nullptr) memory.first->previous = &block;
  memory.first = &block;
}

void Discharge(Block& block) {
  DeviceMemory& memory = MemoryAt(block.device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.statistics.now.Add(block.category, -static_cast<int64_t>(block.bytes));
  (block.previous == nullptr ? memory.first : block.previous->next) =
      block.next;
  if (block.next != nullptr) block.next->previous = block.previous;
}

void Recategorise(Block& block, MemoryCategory category) {
  DeviceMemory& memory = MemoryAt(block.device);
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.statistics.now.Add(block.category, -static_cast<int64_t>(block.bytes));
  block.category = category;
  memory.statistics.now.Add(block.category, static_cast<int64_t>(block.bytes));
}

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
