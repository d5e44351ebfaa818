// Memory statistics of the simulated devices.

#ifndef TANDEM_CORE_SIM_MEMORY_MEMORY_H_
#define TANDEM_CORE_SIM_MEMORY_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "core/device/memory_category.h"
#include "core/memory/device_memory.h"
#include "core/sim/memory/block.h"

namespace tandem {
namespace sim {

// Exact: every tensor's bytes, once, from its making to its end, and the
// temporaries of operators, but not what a kernel's own worker threads use.
// What an operator has just made counts among its temporaries until it returns.
// All of these are thread-safe.
MemoryStatistics BooksOf(int device);

// From now on the peak counts anew, from what is in use.
void ResetPeak(int device);

// At most so many bytes may be in use; 0: as many as the host has. More in use
// by then is no error, but the next allocation is.
void SetCap(int device, int64_t bytes);

// c10::OutOfMemoryError unless so many bytes more fit below the cap. The
// message names device, request, cap, use by category and the largest holders.
void CheckFits(int8_t device, size_t bytes);

// The device whose memory holds the address; kHost if no device's does.
int DeviceHolding(const void* address);

// Books a block, checking again; takes it off the books; moves it to another
// category.
void Charge(Block& block);
void Discharge(Block& block);
void Recategorise(Block& block, MemoryCategory category);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_MEMORY_MEMORY_H_
