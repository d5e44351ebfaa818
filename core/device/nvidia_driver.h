// NVIDIA driver: its version, and the GPUs and links between them of which it
// tells.

#ifndef TANDEM_CORE_DEVICE_NVIDIA_DRIVER_H_
#define TANDEM_CORE_DEVICE_NVIDIA_DRIVER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct Gpu {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  uint64_t memory = 0;       // bytes
  uint64_t free_memory = 0;  // bytes that no process holds
  int major = 0;             // compute capability: 9.0 is {9, 0}
  int minor = 0;
  // Does it take one process at a time (exclusive), or none (prohibited)?
  bool one_process = false;
  bool no_process = false;
  bool split = false;  // into instances (MIG), which are what programs see
};

// Between two GPUs, by their numbers, first < second.
struct GpuLink {
  int first = 0;
  int second = 0;
  bool nvlink = false;
  // Without NVLink: "one PCIe switch", "PCIe switches", "a host bridge",
  // "a NUMA node", "sockets"; empty: unknown.
  std::string path;
  bool peer = false;  // does one read the other's memory?
};

struct NvidiaDriver {
  // Why nothing is known: no driver, or one that does not answer. Empty: there
  // is one.
  std::string missing;
  std::string version;  // "580.65.06"
  int cuda = 0;         // the newest CUDA that it runs: 13000 is 13.0
  std::vector<Gpu> gpus;
  std::vector<GpuLink> links;  // of each pair
};

constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// Asks NVML, the driver's library for management, which is loaded for this: so
// it works in builds without CUDA, and makes no CUDA context. GPUs are all of
// the machine, whatever CUDA_VISIBLE_DEVICES says. Takes up to seconds where
// the driver is not in use. Thread-safe.
NvidiaDriver FindNvidiaDriver(const std::string& library = kNvmlLibrary);

// 13000: "13.0".
std::string CudaVersionName(int version);

// Why a program of CUDA 13 found only `found` GPUs, behind "N GPUs were found":
// no driver or an old one, or GPUs that `visible` (CUDA_VISIBLE_DEVICES; null:
// not set) or a container hides. Empty when it found all.
std::string WhyNotMoreGpus(const NvidiaDriver& driver, int found,
                           const char* visible);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_NVIDIA_DRIVER_H_
