#include "core/memory/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/byte_size.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

// By device type.
std::atomic<BooksFunction>& BooksBy(c10::DeviceType type) {
  static std::array<std::atomic<BooksFunction>,
                    c10::COMPILE_TIME_MAX_DEVICE_TYPES>
      books = {};
  return books[static_cast<size_t>(type)];
}

// Null before the device is used, and where its allocator keeps no statistics.
c10::DeviceAllocator* AllocatorOf(c10::DeviceType type) {
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
    memory->books.now.Add(MemoryCategory::kOther,
                          stats.allocated_bytes[kAll].current);
    memory->books.peak.Add(MemoryCategory::kOther,
                           stats.allocated_bytes[kAll].peak);
  }
  const auto of_device =
      CatchTorchOr([&] { return allocator.getMemoryInfo(device); });
  if (!of_device.ok()) return;  // not every allocator knows
  memory->free = static_cast<int64_t>(of_device->first);
  memory->total = static_cast<int64_t>(of_device->second);
}

}  // namespace

void RegisterMemoryBooks(c10::DeviceType type, BooksFunction books) {
  BooksBy(type).store(books);
}

std::optional<DeviceMemory> MemoryOf(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  const BooksFunction books = BooksBy(device.type()).load();
  c10::DeviceAllocator* const allocator = AllocatorOf(device.type());
  if (books == nullptr && allocator == nullptr) return std::nullopt;
  DeviceMemory memory;
  memory.has_categories = books != nullptr;
  if (books != nullptr) memory.books = books(device.index());
  if (allocator != nullptr) ReadAllocator(*allocator, device.index(), &memory);
  return memory;
}

std::string DescribePeak(const DeviceMemory& memory) {
  const MemoryUse& peak = memory.books.peak;
  std::string text =
      absl::StrCat(FormatBytes(peak.total), ": ", DescribeUse(peak));
  if (memory.peak_reserved == 0) return text;
  absl::StrAppend(&text, "; ", FormatBytes(memory.peak_reserved));
  if (memory.total > 0)
    absl::StrAppend(&text, " of ", FormatBytes(memory.total));
  return absl::StrCat(text, " reserved");
}

}  // namespace tandem
