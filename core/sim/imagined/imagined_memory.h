// Imagined memory: blocks of a device that are booked as any, with none behind
// them; and allocators that let a recording know.

#ifndef TANDEM_CORE_SIM_IMAGINED_IMAGINED_MEMORY_H_
#define TANDEM_CORE_SIM_IMAGINED_IMAGINED_MEMORY_H_

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

#include "core/device/memory_category.h"

namespace tandem {
namespace sim {

// Makes imagined memory that of all simulated devices, and has the host's and
// the meta device's allocations recorded (recording.h). Instead of
// InstallAllocators (core/sim/memory/allocators.h); once.
void InstallImaginedAllocators();
// Was it called?
bool MemoryIsImagined();

// Charged to the device as one of `made_by`'s, an operator's name that lives as
// long as the process. Null for 0 bytes; else an address of its own, at which
// nobody may look. c10::OutOfMemoryError beyond the device's cap.
c10::DataPtr ImagineMemory(size_t bytes, int8_t device, MemoryCategory category,
                           const char* made_by);
// Of one of those that is not null.
void RecategoriseImagined(const c10::DataPtr& memory, MemoryCategory category);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_IMAGINED_MEMORY_H_
