// Imagined memory: blocks of a device that are booked as any, with none behind
// them; and allocators that let a recording know.

#ifndef TANDEM_CORE_SIM_IMAGINED_IMAGINED_MEMORY_H_
#define TANDEM_CORE_SIM_IMAGINED_IMAGINED_MEMORY_H_

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/device/memory_category.h"

namespace tandem {
namespace sim {

// Allocation recording: what memory a call takes and gives back, in order.

struct AllocationEvent {
  int block = 0;       // which one of the recording's, from 0
  bool taken = false;  // else given back
  size_t bytes = 0;
};

// While it lives, what the calling thread allocates on the host and on the meta
// device is written down instead of charged to a device, and so is what it
// gives back of that. One a thread at a time. Blocks may outlive it.
class AllocationRecording {
 public:
  AllocationRecording();
  ~AllocationRecording();
  AllocationRecording(const AllocationRecording&) = delete;
  AllocationRecording& operator=(const AllocationRecording&) = delete;

  // The calling thread's; null: none.
  static AllocationRecording* Current();

  void NoteTaken(const void* block, size_t bytes);
  // One that was taken before it is no affair of the recording's.
  void NoteGivenBack(const void* block);

  // The number of a block that has not been given back.
  std::optional<int> Find(const void* block) const;
  const std::vector<AllocationEvent>& events() const { return events_; }

 private:
  std::vector<AllocationEvent> events_;
  std::unordered_map<const void*, int> held_;
  int blocks_ = 0;
};

// Makes imagined memory that of all simulated devices, and has the host's and
// the meta device's allocations recorded. Instead of
// InstallAllocators (core/sim/memory/memory.h); once.
void InstallImaginedAllocators();
// Was it called?
bool MemoryIsImagined();

// Charged to the device as one of `made_by`'s, an operator's name that lives as
// long as the process. Null for 0 bytes; else an address of its own, at which
// nobody may look. c10::OutOfMemoryError beyond the device's cap.
c10::DataPtr ImagineMemory(size_t bytes, int8_t device, MemoryCategory category,
                           const char* made_by);
// Changes the category of imagined memory that is not null.
void RecategoriseImagined(const c10::DataPtr& memory, MemoryCategory category);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_IMAGINED_MEMORY_H_
