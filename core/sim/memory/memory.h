// Memory of simulated devices: statistics, caps, and the allocators that
// LibTorch has while devices are simulated.

#ifndef TANDEM_CORE_SIM_MEMORY_MEMORY_H_
#define TANDEM_CORE_SIM_MEMORY_MEMORY_H_

#include <c10/core/Allocator.h>

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
// All of these functions are thread-safe.
MemoryStatistics DeviceMemoryStatistics(int device);

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

// Puts the process's CPU tensors into blocks (block.h) from now on, on top of
// the CPU allocator that it has, and registers the simulated devices'. Once.
void InstallAllocators();

// Memory of the calling thread's current device, charged to its
// MemoryCategoryScope.
c10::Allocator* DeviceAllocator();

// Host memory that IsPinned() knows.
c10::Allocator* PinnedAllocator();
bool IsPinned(const void* pointer);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_MEMORY_MEMORY_H_
