// Statistics of what LibTorch's caching allocator of GPUs gives out.

#ifdef TANDEM_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "core/base/torch_status.h"
#include "core/memory/device_memory.h"
#endif

namespace tandem {

#ifdef TANDEM_CUDA
namespace {

// Never destroyed: tensors of static duration are released late.
AllocationStatistics& Statistics() {
  static auto* statistics = new AllocationStatistics;
  return *statistics;
}

bool Attach() {
  // The allocator has no devices before.
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(
      [](const AllocationStatistics::Entry& entry) {
        Statistics().Note(entry);
      });
  RegisterMemoryStatistics(c10::DeviceType::CUDA,
                           [](int device) { return Statistics().Of(device); });
  SetOutOfMemoryNote([] { return Statistics().TakeFailure("cuda"); });
  return true;
}

}  // namespace

void RecordGpuMemory() {
  static const bool attached = Attach();
  static_cast<void>(attached);
}
#else
void RecordGpuMemory() {}
#endif

}  // namespace tandem
