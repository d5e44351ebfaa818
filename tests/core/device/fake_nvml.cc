// A stand-in for NVIDIA's libnvidia-ml.so.1, loaded by nvidia_driver_test: four
// GPUs, of which the first two are joined by NVLink, the third is split and
// beyond a host bridge, and the last has fallen off the bus.

#include <cstdlib>
#include <cstring>

namespace {

// Devices as NVML hands them out: pointers that are no null, told apart by
// number.
char devices[4];
long NumberOf(void* device) { return static_cast<char*>(device) - devices; }

struct Memory {
  unsigned long long total, free, used;  // NOLINT(runtime/int)
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("FAKE_NVML_FAILS") ? 9 : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int result) {
  return result == 9 ? "Driver Not Loaded" : "?";
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.65.06", length);
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 3) return 15;  // NVML_ERROR_GPU_IS_LOST
  *device = devices + index;
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  std::strncpy(name, NumberOf(device) == 2 ? "A100" : "H100", length);
  return 0;
}
#ifdef __clang__
// Its callers have a struct of their own, and a library in C, which this stands
// for, does not tell UndefinedBehaviorSanitizer which it takes.
__attribute__((no_sanitize("function")))
#endif
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  memory->total = 80ull << 30;
  memory->free = (70ull + NumberOf(device)) << 30;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = NumberOf(device) == 2 ? 8 : 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetComputeMode(void* device, int* mode) {
  *mode = NumberOf(device) == 1 ? 3 : 0;
  return 0;
}
// The first ones know nothing of it: NVML_ERROR_NOT_SUPPORTED.
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* later) {
  if (NumberOf(device) < 2) return 3;
  *now = *later = 1;
  return 0;
}
int nvmlDeviceGetP2PStatus(void* first, void* second, int what, int* status) {
  const bool joined = NumberOf(first) + NumberOf(second) == 1;
  *status = joined && (what == 0 || what == 2) ? 0 : 1;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void* second, int* level) {
  *level = NumberOf(second) == 2 ? 30 : 10;
  return 0;
}

}  // extern "C"
