// LibTorch's allocators while devices are simulated.

#ifndef TANDEM_CORE_SIM_MEMORY_ALLOCATORS_H_
#define TANDEM_CORE_SIM_MEMORY_ALLOCATORS_H_

#include <c10/core/Allocator.h>

namespace tandem {
namespace sim {

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

#endif  // TANDEM_CORE_SIM_MEMORY_ALLOCATORS_H_
