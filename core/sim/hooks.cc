#include "core/sim/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/memory/result_category.h"
#include "core/sim/imagined/imagined_memory.h"
#include "core/sim/memory/allocators.h"
#include "core/sim/memory/block.h"
#include "core/sim/memory/memory.h"
#include "core/sim/streams/device_guard.h"
#include "core/sim/streams/generator.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    SetCurrentDevice(device);
  }
  c10::DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = CurrentDevice();
    SetCurrentDevice(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? CurrentDevice() : exchangeDevice(device);
  }

  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device) const override {
    return DefaultGenerator(device < 0 ? CurrentDevice() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return NewGenerator(device < 0 ? CurrentDevice() : device);
  }

  c10::Device getDeviceFromPtr(void* data) const override {
    const int device = DeviceHolding(ToHostPointer(data));
    TORCH_CHECK(device != kHost && data != ToHostPointer(data),
                "the pointer is not of a simulated device");
    return c10::Device(c10::DeviceType::PrivateUse1,
                       static_cast<c10::DeviceIndex>(device));
  }
  bool isPinnedPtr(const void* data) const override { return IsPinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return PinnedAllocator();
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t bytes) const override {
    Synchronise(CurrentStream(storage.device().index()));
    const c10::DeviceIndex device = storage.device().index();
    c10::DataPtr memory =
        MemoryIsImagined()
            ? ImagineMemory(bytes, device, CategoryOfResults(), "aten::resize_")
            : AllocateOnDevice(bytes, device, CategoryOfResults());
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0 && !MemoryIsImagined()) {
      std::memcpy(ToHostPointer(memory.get()), ToHostPointer(storage.data()),
                  kept);
    }
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
  }
};

}  // namespace

void RegisterHooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace sim
}  // namespace tandem
