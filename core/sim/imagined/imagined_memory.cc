#include "core/sim/imagined/imagined_memory.h"

#include <c10/core/CPUAllocator.h>
#include <glog/logging.h>

#include <memory>

#include "core/device/memory_category.h"
#include "core/sim/memory/block.h"
#include "core/sim/memory/memory.h"
#include "core/sim/streams/device_guard.h"

namespace tandem {
namespace sim {
namespace {

thread_local AllocationRecording* current = nullptr;

}  // namespace

AllocationRecording::AllocationRecording() {
  CHECK(current == nullptr) << "calls are recorded one at a time";
  current = this;
}

AllocationRecording::~AllocationRecording() { current = nullptr; }

AllocationRecording* AllocationRecording::Current() { return current; }

void AllocationRecording::NoteTaken(const void* block, size_t bytes) {
  held_[block] = blocks_;
  events_.push_back({blocks_++, /*taken=*/true, bytes});
}

void AllocationRecording::NoteGivenBack(const void* block) {
  const auto found = held_.find(block);
  if (found == held_.end()) return;
  events_.push_back({found->second, /*taken=*/false, 0});
  held_.erase(found);
}

std::optional<int> AllocationRecording::Find(const void* block) const {
  const auto found = held_.find(block);
  if (found == held_.end()) return std::nullopt;
  return found->second;
}

namespace {

c10::Allocator* host = nullptr;  // what the process had

void GiveBackImagined(void* context) {
  auto* const block = static_cast<Block*>(context);
  Discharge(*block);
  delete block;
}

class ImaginedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return ImagineMemory(bytes, CurrentDevice(), CategoryOfResults(),
                         "aten::empty");
  }
  void copy_data(void*, const void*, size_t) const override {}
};

void GiveBackHost(void* data) {
  AllocationRecording* const recording = AllocationRecording::Current();
  if (recording != nullptr) recording->NoteGivenBack(data);
  host->raw_deallocate(data);
}

class RecordedHostAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return c10::DataPtr(nullptr, cpu);
    void* const data = host->raw_allocate(bytes);
    AllocationRecording* const recording = AllocationRecording::Current();
    if (recording != nullptr) recording->NoteTaken(data, bytes);
    return c10::DataPtr(data, data, &GiveBackHost, cpu);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &GiveBackHost; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

void GiveBackMeta(void* mark) {
  AllocationRecording* const recording = AllocationRecording::Current();
  if (recording != nullptr) recording->NoteGivenBack(mark);
  delete static_cast<char*>(mark);
}

// LibTorch's own allocator, but for a mark on each allocation that is recorded.
class RecordedMetaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device meta(c10::DeviceType::Meta);
    AllocationRecording* const recording = AllocationRecording::Current();
    if (recording == nullptr || bytes == 0) return c10::DataPtr(nullptr, meta);
    auto* const mark = new char;
    recording->NoteTaken(mark, bytes);
    return c10::DataPtr(nullptr, mark, &GiveBackMeta, meta);
  }
  void copy_data(void*, const void*, size_t) const override {}
};

// Allocators are never destroyed: tensors may outlive static objects. The
// priority is above that of the one that was there.
template <typename T>
void Install(c10::DeviceType type) {
  static auto* const allocator = new T;
  c10::SetAllocator(type, allocator, /*priority=*/255);
}

}  // namespace

void InstallImaginedAllocators() {
  host = c10::GetCPUAllocator();
  TakeBlocksFrom(host);  // pinned memory's
  Install<RecordedHostAllocator>(c10::DeviceType::CPU);
  Install<RecordedMetaAllocator>(c10::DeviceType::Meta);
  Install<ImaginedAllocator>(c10::DeviceType::PrivateUse1);
}

bool MemoryIsImagined() { return host != nullptr; }

c10::DataPtr ImagineMemory(size_t bytes, int8_t device, MemoryCategory category,
                           const char* made_by) {
  const c10::Device sim_device(c10::DeviceType::PrivateUse1, device);
  if (bytes == 0) return c10::DataPtr(nullptr, sim_device);
  auto block = std::make_unique<Block>();
  block->device = device;
  block->category = category;
  block->bytes = bytes;
  block->made_by = made_by;
  Charge(*block);
  void* const address = ToDevicePointer(block->data());
  return c10::DataPtr(address, block.release(), &GiveBackImagined, sim_device);
}

void RecategoriseImagined(const c10::DataPtr& memory, MemoryCategory category) {
  Recategorise(*static_cast<Block*>(memory.get_context()), category);
}

}  // namespace sim
}  // namespace tandem
