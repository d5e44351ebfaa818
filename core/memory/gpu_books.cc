// Books of what LibTorch's caching allocator of GPUs gives out.

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
AllocationBooks& Books() {
  static auto* books = new AllocationBooks;
  return *books;
}

bool Attach() {
  // The allocator has no devices before.
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(
      [](const AllocationBooks::Entry& entry) { Books().Note(entry); });
  RegisterMemoryBooks(c10::DeviceType::CUDA,
                      [](int device) { return Books().Of(device); });
  SetOutOfMemoryNote([] { return Books().TakeFailure("cuda"); });
  return true;
}

}  // namespace

void KeepBooksOfGpus() {
  static const bool attached = Attach();
  static_cast<void>(attached);
}
#else
void KeepBooksOfGpus() {}
#endif

}  // namespace tandem
