#include "core/memory/allocation_books.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/byte_size.h"
#include "core/memory/result_category.h"

namespace tandem {

void AllocationBooks::Note(const Entry& entry) {
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
      at_failure_ = device.books.now;
      break;
    default:  // of segments, which hold what these tell of
      break;
  }
}

void AllocationBooks::Allocate(Device& device, size_t address, int64_t bytes) {
  Free(device, address);  // if its end was not told
  const MemoryCategory category = CategoryOfResults();
  device.held[address] = {bytes, category};
  device.books.now.Add(category, bytes);
  device.books.NotePeak();
}

void AllocationBooks::Free(Device& device, size_t address) {
  const auto found = device.held.find(address);
  if (found == device.held.end()) return;  // from before the books
  device.books.now.Add(found->second.category, -found->second.bytes);
  device.held.erase(found);
}

MemoryBooks AllocationBooks::Of(int device) const {
  absl::MutexLock lock(&mutex_);
  const auto found = devices_.find(device);
  return found == devices_.end() ? MemoryBooks() : found->second.books;
}

std::string AllocationBooks::TakeFailure(const std::string& type) {
  absl::MutexLock lock(&mutex_);
  const int device = std::exchange(failed_, -1);
  if (device < 0) return "";
  return absl::StrCat(
      type, ":", device, " held ", FormatBytes(at_failure_.total), " then (",
      DescribeUse(at_failure_),
      "): take a smaller batch or smaller microbatches, activation "
      "checkpointing, an optimizer that replicas share, or more devices");
}

}  // namespace tandem
