#include "core/sim/memory/block.h"

#include <new>

#include "core/sim/memory/memory.h"

namespace tandem {
namespace sim {
namespace {

c10::Allocator* source = nullptr;

constexpr size_t kLarge = size_t{1} << 20;

thread_local int8_t charged_device = kHost;
thread_local const char* running_op = "aten::empty";

Block* NewBlock(size_t bytes, int8_t device, MemoryCategory category) {
  // Before the host is asked: it may not have what the device has not either.
  if (device != kHost && bytes >= kLarge) CheckFits(device, bytes);
  Block* block = new (source->raw_allocate(sizeof(Block) + bytes)) Block;
  block->device = device;
  block->category = category;
  block->bytes = bytes;
  block->made_by = running_op;
  if (device == kHost) return block;
  try {
    Charge(*block);
  } catch (...) {
    source->raw_deallocate(block);
    throw;
  }
  return block;
}

c10::Device SimDevice(int8_t device) {
  return c10::Device(c10::DeviceType::PrivateUse1, device);
}

}  // namespace

ChargeScope::ChargeScope(int8_t device, const char* op)
    : outer_device_(charged_device), outer_op_(running_op) {
  charged_device = device;
  running_op = op;
}

ChargeScope::~ChargeScope() {
  charged_device = outer_device_;
  running_op = outer_op_;
}

void TakeBlocksFrom(c10::Allocator* allocator) { source = allocator; }

c10::DataPtr AllocateOnHost(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return c10::DataPtr(nullptr, cpu);
  void* data =
      NewBlock(bytes, charged_device, MemoryCategory::kTemporaries)->data();
  return c10::DataPtr(data, data, &ReleaseBlock, cpu);
}

c10::DataPtr AllocateOnDevice(size_t bytes, int8_t device,
                              MemoryCategory category) {
  if (bytes == 0) return c10::DataPtr(nullptr, SimDevice(device));
  void* data = NewBlock(bytes, device, category)->data();
  return c10::DataPtr(ToDevicePointer(data), data, &ReleaseBlock,
                      SimDevice(device));
}

Block* FindBlock(const c10::DataPtr& pointer) {
  if (pointer.get_deleter() != &ReleaseBlock) return nullptr;
  return static_cast<Block*>(pointer.get_context()) - 1;
}

c10::DataPtr OnDevice(Block& block) {
  block.references.fetch_add(1, std::memory_order_relaxed);
  return c10::DataPtr(ToDevicePointer(block.data()), block.data(),
                      &ReleaseBlock, SimDevice(block.device));
}

void ReleaseBlock(void* data) {
  if (data == nullptr) return;
  Block* block = static_cast<Block*>(data) - 1;
  if (block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (block->device != kHost) Discharge(*block);
  source->raw_deallocate(block);
}

}  // namespace sim
}  // namespace tandem
