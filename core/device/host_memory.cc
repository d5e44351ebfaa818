#include "core/device/host_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <unordered_map>

#ifdef TANDEM_CUDA
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <glog/logging.h>
#include <sys/mman.h>

#include <new>
#endif

namespace tandem {
namespace {

// By device type.
std::atomic<HostViewFunction>& RegisteredView(c10::DeviceType type) {
  static std::array<std::atomic<HostViewFunction>,
                    c10::COMPILE_TIME_MAX_DEVICE_TYPES>
      views = {};
  return views[static_cast<size_t>(type)];
}

}  // namespace

bool RunsCpuKernels(c10::DeviceType type) {
  return type == c10::DeviceType::CPU || RegisteredView(type).load() != nullptr;
}

at::Tensor HostView(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor.detach();
  const HostViewFunction view = RegisteredView(tensor.device().type()).load();
  return view == nullptr ? at::Tensor() : view(tensor);
}

void RegisterHostMemory(c10::DeviceType type, HostViewFunction view) {
  RegisteredView(type).store(view);
}

std::vector<double> ReadNumbers(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::unordered_map<c10::Device, std::vector<at::Tensor>> rows;
  for (const at::Tensor& each : tensors) {
    rows[each.device()].push_back(each.reshape({-1}).to(at::kDouble));
  }
  std::unordered_map<c10::Device, at::Tensor> copies;
  std::unordered_map<c10::Device, const double*> next;
  for (const auto& [device, device_rows] : rows) {
    copies[device] = at::cat(device_rows).cpu();
    next[device] = copies[device].const_data_ptr<double>();
  }
  std::vector<double> numbers;
  for (const at::Tensor& each : tensors) {
    const double*& begin = next[each.device()];
    numbers.insert(numbers.end(), begin, begin + each.numel());
    begin += each.numel();
  }
  return numbers;
}

#ifdef TANDEM_CUDA

namespace {

// Whether the driver has; else copies go another way round, and are right.
bool Pin(void* memory, size_t bytes, c10::Device gpu) {
  const c10::cuda::CUDAGuard guard(gpu);
  const cudaError_t error =
      cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) return true;
  cudaGetLastError();  // or the next kernel's launch would be given it
  LOG(WARNING) << "cannot pin " << bytes << " bytes of the host's memory ("
               << cudaGetErrorString(error) << "): copies from " << gpu
               << " take longer";
  return false;
}

at::Tensor PinnedFor(c10::Device gpu, int64_t size) {
  const auto bytes = static_cast<size_t>(size);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const bool is_pinned = Pin(memory, bytes, gpu);
  return at::from_blob(
      memory, {size},
      [bytes, is_pinned](void* address) {
        if (is_pinned) cudaHostUnregister(address);
        munmap(address, bytes);
      },
      at::kByte);
}

}  // namespace

#endif

at::Tensor NewPinned(int64_t bytes, [[maybe_unused]] c10::Device device) {
#ifdef TANDEM_CUDA
  if (device.is_cuda() && bytes > 0) return PinnedFor(device, bytes);
#endif
  return at::empty({bytes}, at::kByte);
}

}  // namespace tandem
