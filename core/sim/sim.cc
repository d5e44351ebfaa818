#include "core/sim/sim.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/device/device.h"
#include "core/device/host_memory.h"
#include "core/device/memory_category.h"
#include "core/memory/device_memory.h"
#include "core/sim/calls/call_aliases.h"
#include "core/sim/imagined/imagined_memory.h"
#include "core/sim/memory/block.h"
#include "core/sim/memory/memory.h"
#include "core/sim/operators/register_operators.h"
#include "core/sim/streams/device_guard.h"
#include "core/sim/streams/generator.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

// What LibTorch asks an accelerator for beyond its operators.
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

// Registers them: number of devices, current one, generators, pinned memory,
// whose memory a pointer is, resizing. Once.
void RegisterHooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace
}  // namespace sim

namespace {

// What the process has; written under the mutex, once.
struct Enabled {
  std::mutex mutex;
  bool done = false;
  SimOptions options;
};

Enabled& State() {
  static auto* state = new Enabled;
  return *state;
}

bool Same(const SimOptions& a, const SimOptions& b) {
  const auto all = [](const SimOptions& o) {
    return std::tie(o.devices, o.memory, o.async, o.most_delay_us, o.delay_seed,
                    o.imagined);
  };
  return all(a) == all(b);
}

absl::Status Check(const SimOptions& options) {
  if (options.devices < 1 || options.devices > sim::kMostDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.devices, " simulated devices: expected 1 to ",
                     sim::kMostDevices));
  }
  if (options.imagined && options.async) {
    return absl::InvalidArgumentError(
        "imagined devices compute nothing that could be queued: not "
        "asynchronous");
  }
  if (options.memory < 0 || options.most_delay_us < 0) {
    return absl::InvalidArgumentError(
        "simulated devices: memory and delay must not be negative");
  }
  if (at::detail::getCUDAHooks().hasCUDA()) {
    return absl::FailedPreconditionError(
        "simulated devices cannot stand beside CUDA's, which LibTorch finds "
        "here; hide them with CUDA_VISIBLE_DEVICES=");
  }
  return absl::OkStatus();
}

// The view of a tensor of an imagined device: shapes alone.
at::Tensor ViewFromHost(const at::Tensor& tensor) {
  if (sim::MemoryIsImagined()) {
    return at::empty_strided(tensor.sizes(), tensor.strides(),
                             tensor.options().device(c10::kMeta));
  }
  sim::CountHostWait("view from the host");
  sim::Synchronise(sim::CurrentStream(tensor.device().index()));
  return sim::HostAlias(tensor);
}

void Register(const SimOptions& options) {
  if (options.async) {
    sim::UseQueues(options.most_delay_us, options.delay_seed);
  }
  sim::SetDeviceCount(options.devices);
  for (int i = 0; i < options.devices; ++i) sim::SetCap(i, options.memory);
  if (options.imagined) {
    sim::InstallImaginedAllocators();
  } else {
    sim::InstallAllocators();
  }
  c10::register_privateuse1_backend("sim");
  sim::RegisterDeviceGuard();
  sim::RegisterHooks();
  sim::RegisterOperators();
  at::globalContext().lazyInitDevice(c10::DeviceType::PrivateUse1);
  RegisterHostMemory(c10::DeviceType::PrivateUse1, &ViewFromHost);
  RegisterMemoryStatistics(c10::DeviceType::PrivateUse1,
                           &sim::DeviceMemoryStatistics);
  RegisterDeviceType("sim", c10::DeviceType::PrivateUse1);
}

}  // namespace

absl::Status EnableSim(const SimOptions& options) {
  const absl::Status checked = Check(options);
  if (!checked.ok()) return checked;
  std::lock_guard<std::mutex> lock(State().mutex);
  if (State().done && Same(options, State().options)) return absl::OkStatus();
  if (State().done) {
    return absl::FailedPreconditionError(
        "simulated devices have been made in this process before, with other "
        "options");
  }
  const absl::Status made =
      CatchTorch([&] { Register(options); }, "making simulated devices");
  State().done = made.ok();
  State().options = options;
  return made;
}

bool SimIsEnabled() {
  std::lock_guard<std::mutex> lock(State().mutex);
  return State().done;
}

c10::Device SimDevice(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1,
                     static_cast<c10::DeviceIndex>(index));
}

}  // namespace tandem
