#include "core/device/nvidia_driver.h"

#include <dlfcn.h>

#include <array>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// NVML's types and numbers, as its manual has them: the library is loaded where
// there is one, so its header need not be.
using Device = void*;
using Result = int;
constexpr Result kSuccess = 0;
constexpr int kPeerToPeerReads = 0;       // NVML_P2P_CAPS_INDEX_READ
constexpr int kPeerToPeerOverNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kPeerToPeerWorks = 0;       // NVML_P2P_STATUS_OK
constexpr int kComputeModeProhibited = 2;
constexpr int kComputeModeExclusive = 3;

struct Memory {
  unsigned long long total, free, used;  // NOLINT(runtime/int)
};

// The functions of the library that was loaded; it is never unloaded.
class Nvml {
 public:
  explicit Nvml(void* library) : library_(library) {}

  // Whether NAME(arguments...) is there and succeeds.
  template <typename... Arguments>
  bool Call(const char* name, Arguments... arguments) const {
    return Ask(name, arguments...) == kSuccess;
  }

  template <typename... Arguments>
  Result Ask(const char* name, Arguments... arguments) const {
    auto* function =
        reinterpret_cast<Result (*)(Arguments...)>(dlsym(library_, name));
    return function == nullptr ? kNoSuchFunction : function(arguments...);
  }

  std::string Describe(Result result) const {
    auto* describe = reinterpret_cast<const char* (*)(Result)>(
        dlsym(library_, "nvmlErrorString"));
    return describe == nullptr ? absl::StrCat("error ", result)
                               : describe(result);
  }

 private:
  static constexpr Result kNoSuchFunction = 13;  // NVML's own number of it

  void* library_;
};

std::string DeviceName(const Nvml& nvml, Device device) {
  std::array<char, 96> name = {};
  nvml.Call("nvmlDeviceGetName", device, name.data(),
            static_cast<unsigned>(name.size()));
  return name.data();
}

Gpu Describe(const Nvml& nvml, Device device) {
  Gpu gpu;
  gpu.name = DeviceName(nvml, device);
  Memory memory = {};
  if (nvml.Call("nvmlDeviceGetMemoryInfo", device, &memory)) {
    gpu.memory = memory.total;
    gpu.free_memory = memory.free;
  }
  nvml.Call("nvmlDeviceGetCudaComputeCapability", device, &gpu.major,
            &gpu.minor);
  int mode = 0;
  if (nvml.Call("nvmlDeviceGetComputeMode", device, &mode)) {
    gpu.one_process = mode == kComputeModeExclusive;
    gpu.no_process = mode == kComputeModeProhibited;
  }
  unsigned split = 0, later = 0;
  gpu.split =
      nvml.Call("nvmlDeviceGetMigMode", device, &split, &later) && split != 0;
  return gpu;
}

std::string PathName(int level) {
  switch (level) {
    case 0:
    case 10:
      return "one PCIe switch";
    case 20:
      return "PCIe switches";
    case 30:
      return "a host bridge";
    case 40:
      return "a NUMA node";
    case 50:
      return "sockets";
    default:
      return "";
  }
}

GpuLink FindLink(const Nvml& nvml, const std::vector<Device>& devices,
                 int first, int second) {
  GpuLink link;
  link.first = first;
  link.second = second;
  const Device a = devices[first], b = devices[second];
  int status = -1;
  link.peer =
      nvml.Call("nvmlDeviceGetP2PStatus", a, b, kPeerToPeerReads, &status) &&
      status == kPeerToPeerWorks;
  link.nvlink = nvml.Call("nvmlDeviceGetP2PStatus", a, b, kPeerToPeerOverNvlink,
                          &status) &&
                status == kPeerToPeerWorks;
  int level = -1;
  if (nvml.Call("nvmlDeviceGetTopologyCommonAncestor", a, b, &level)) {
    link.path = PathName(level);
  }
  return link;
}

std::vector<Device> AllDevices(const Nvml& nvml) {
  unsigned count = 0;
  nvml.Call("nvmlDeviceGetCount_v2", &count);
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    // One that has fallen off the bus, or is another container's, has none.
    if (nvml.Call("nvmlDeviceGetHandleByIndex_v2", i, &device)) {
      devices.push_back(device);
    }
  }
  return devices;
}

NvidiaDriver Describe(const Nvml& nvml) {
  NvidiaDriver driver;
  std::array<char, 96> version = {};
  nvml.Call("nvmlSystemGetDriverVersion", version.data(),
            static_cast<unsigned>(version.size()));
  driver.version = version.data();
  nvml.Call("nvmlSystemGetCudaDriverVersion_v2", &driver.cuda);
  const std::vector<Device> devices = AllDevices(nvml);
  for (const Device device : devices) {
    driver.gpus.push_back(Describe(nvml, device));
  }
  const int count = static_cast<int>(devices.size());
  for (int first = 0; first < count; ++first) {
    for (int second = first + 1; second < count; ++second) {
      driver.links.push_back(FindLink(nvml, devices, first, second));
    }
  }
  return driver;
}

}  // namespace

NvidiaDriver FindNvidiaDriver(const std::string& library) {
  NvidiaDriver none;
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    none.missing = absl::StrCat(
        "NVIDIA's driver is not installed, or not given to this container (",
        library, " is not found)");
    return none;
  }
  const Nvml nvml(loaded);
  const Result started = nvml.Ask("nvmlInit_v2");
  if (started != kSuccess) {
    none.missing = absl::StrCat("NVIDIA's driver does not answer: ",
                                nvml.Describe(started));
    return none;
  }
  NvidiaDriver driver = Describe(nvml);
  nvml.Call("nvmlShutdown");
  return driver;
}

std::string CudaVersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string WhyNotMoreGpus(const NvidiaDriver& driver, int found,
                           const char* visible) {
  constexpr int kNeeded = 13000;
  const int there = static_cast<int>(driver.gpus.size());
  if (!driver.missing.empty()) return absl::StrCat(": ", driver.missing);
  if (there <= found) return "";
  if (driver.cuda < kNeeded) {
    return absl::StrCat(": the driver ", driver.version, " runs CUDA up to ",
                        CudaVersionName(driver.cuda),
                        ", and this program needs driver 580 or newer");
  }
  return absl::StrCat(
      " of the machine's ", there,
      visible == nullptr
          ? ": the container or the job has no more"
          : absl::StrCat(": CUDA_VISIBLE_DEVICES is \"", visible, "\""));
}

}  // namespace tandem
