// Memory block of a simulated device, or of the host while devices are
// simulated: host memory behind a header that says whom it is charged to.

#ifndef TANDEM_CORE_SIM_MEMORY_BLOCK_H_
#define TANDEM_CORE_SIM_MEMORY_BLOCK_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/device/memory_category.h"

namespace tandem {
namespace sim {

constexpr int8_t kHost = -1;  // in the place of a device's number

// Tensors of CPU and of simulated devices alike lie in blocks, so that what a
// CPU kernel has made becomes a device's without a copy.
struct alignas(64) Block {
  std::atomic<int32_t> references{1};
  int8_t device = kHost;
  MemoryCategory category = MemoryCategory::kOther;
  size_t bytes = 0;
  const char* made_by = "";  // an operator's name; lives as long as the process
  // The next in the device's list, which its memory's lock guards.
  Block* next = nullptr;
  Block* previous = nullptr;

  void* data() { return this + 1; }
};
static_assert(sizeof(Block) == 64, "data keeps the alignment of the block");

// What the calling thread allocates on the host meanwhile is charged to
// `device`, as the temporaries of the operator `op`. Scopes nest.
class ChargeScope {
 public:
  ChargeScope(int8_t device, const char* op);
  ~ChargeScope();
  ChargeScope(const ChargeScope&) = delete;
  ChargeScope& operator=(const ChargeScope&) = delete;

 private:
  const int8_t outer_device_;
  const char* const outer_op_;
};

// From where blocks come: the process's CPU allocator until then. Once.
void TakeBlocksFrom(c10::Allocator* allocator);

// A device's pointers are no addresses: whoever dereferences one on the host is
// told so by a fault, as with a GPU's. Null stays null.
inline void* ToDevicePointer(void* host) {
  constexpr uintptr_t kNonCanonical = uintptr_t{1} << 62;
  return host == nullptr
             ? nullptr
             : reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) |
                                       kNonCanonical);
}
inline void* ToHostPointer(const void* pointer) {
  constexpr uintptr_t kNonCanonical = uintptr_t{1} << 62;
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) &
                                 ~kNonCanonical);
}

// Memory of the host, charged as the thread's ChargeScope says; of a device,
// charged to `category`. Null for 0 bytes. c10::OutOfMemoryError beyond the
// device's cap.
c10::DataPtr AllocateOnHost(size_t bytes);
c10::DataPtr AllocateOnDevice(size_t bytes, int8_t device,
                              MemoryCategory category);

// The block behind a pointer that one of these gave, or null.
Block* FindBlock(const c10::DataPtr& pointer);

// The same memory on a device; holds the block.
c10::DataPtr OnDevice(Block& block);

// Gives memory that is not pinned, pinned or a device's back.
void ReleaseBlock(void* data);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_MEMORY_BLOCK_H_
