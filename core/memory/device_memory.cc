#include "core/memory/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"

namespace tandem {

std::string DescribeUse(const MemoryUse& use) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const int64_t bytes = use.by_category[i];
    if (bytes == 0) continue;
    parts.emplace_back(
        bytes, absl::StrCat(MemoryCategoryName(static_cast<MemoryCategory>(i)),
                            " ", FormatBytes(bytes)));
  }
  if (parts.empty()) return "nothing";
  std::sort(parts.rbegin(), parts.rend());
  return absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
    out->append(part.second);
  });
}

void AllocationStatistics::Note(const Entry& entry) {
  absl::MutexLock lock(&mutex_);
  Device& device = devices_[entry.device_];
  switch (entry.action_) {
    case Entry::ALLOC:
      Allocate(device, entry.addr_, static_cast<int64_t>(entry.size_));
      break;
    case Entry::FREE_COMPLETED:
      Free(device, entry.addr_);
      break;
    case Entry::OOM:
      failed_ = entry.device_;
      at_failure_ = device.statistics.now;
      break;
    default:  // of segments, which hold what these tell of
      break;
  }
}

void AllocationStatistics::Allocate(Device& device, size_t address,
                                    int64_t bytes) {
  Free(device, address);  // if its end was not told
  const MemoryCategory category = CategoryOfResults();
  device.held[address] = {bytes, category};
  device.statistics.now.Add(category, bytes);
  device.statistics.NotePeak();
}

void AllocationStatistics::Free(Device& device, size_t address) {
  const auto found = device.held.find(address);
  if (found == device.held.end()) return;  // from before the statistics
  device.statistics.now.Add(found->second.category, -found->second.bytes);
  device.held.erase(found);
}

MemoryStatistics AllocationStatistics::Of(int device) const {
  absl::MutexLock lock(&mutex_);
  const auto found = devices_.find(device);
  return found == devices_.end() ? MemoryStatistics()
                                 : found->second.statistics;
}

std::string AllocationStatistics::TakeFailure(const std::string& type) {
  absl::MutexLock lock(&mutex_);
  const int device = std::exchange(failed_, -1);
  if (device < 0) return "";
  return absl::StrCat(
      type, ":", device, " held ", FormatBytes(at_failure_.total), " then (",
      DescribeUse(at_failure_),
      "): take a smaller batch or smaller microbatches, activation "
      "checkpointing, an optimizer that replicas share, or more devices");
}

namespace {

// By device type.
std::atomic<StatisticsFunction>& StatisticsBy(c10::DeviceType type) {
  static std::array<std::atomic<StatisticsFunction>,
                    c10::COMPILE_TIME_MAX_DEVICE_TYPES>
      statistics = {};
  return statistics[static_cast<size_t>(type)];
}

// Null before the device is used, and where its allocator keeps no statistics.
c10::DeviceAllocator* FindAllocator(c10::DeviceType type) {
  auto* const allocator =
      dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

void ReadAllocator(c10::DeviceAllocator& allocator, c10::DeviceIndex device,
                   DeviceMemory* memory) {
  constexpr auto kAll =
      static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator.getDeviceStats(device);
  memory->reserved = stats.reserved_bytes[kAll].current;
  memory->peak_reserved = stats.reserved_bytes[kAll].peak;
  if (!memory->has_categories) {
    memory->statistics.now.Add(MemoryCategory::kOther,
                               stats.allocated_bytes[kAll].current);
    memory->statistics.peak.Add(MemoryCategory::kOther,
                                stats.allocated_bytes[kAll].peak);
  }
  const auto of_device =
      CatchTorchOr([&] { return allocator.getMemoryInfo(device); });
  if (!of_device.ok()) return;  // not every allocator knows
  memory->free = static_cast<int64_t>(of_device->first);
  memory->total = static_cast<int64_t>(of_device->second);
}

}  // namespace

void RegisterMemoryStatistics(c10::DeviceType type,
                              StatisticsFunction statistics) {
  StatisticsBy(type).store(statistics);
}

std::optional<DeviceMemory> MemoryOf(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  const StatisticsFunction statistics = StatisticsBy(device.type()).load();
  c10::DeviceAllocator* const allocator = FindAllocator(device.type());
  if (statistics == nullptr && allocator == nullptr) return std::nullopt;
  DeviceMemory memory;
  memory.has_categories = statistics != nullptr;
  if (statistics != nullptr) memory.statistics = statistics(device.index());
  if (allocator != nullptr) ReadAllocator(*allocator, device.index(), &memory);
  return memory;
}

std::string DescribePeak(const DeviceMemory& memory) {
  const MemoryUse& peak = memory.statistics.peak;
  std::string text =
      absl::StrCat(FormatBytes(peak.total), ": ", DescribeUse(peak));
  if (memory.peak_reserved == 0) return text;
  absl::StrAppend(&text, "; ", FormatBytes(memory.peak_reserved));
  if (memory.total > 0)
    absl::StrAppend(&text, " of ", FormatBytes(memory.total));
  return absl::StrCat(text, " reserved");
}

}  // namespace tandem
