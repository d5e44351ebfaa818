#include "core/device/pinned_memory.h"

#include <ATen/ops/empty.h>

#ifdef TANDEM_CUDA
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <glog/logging.h>
#include <sys/mman.h>

#include <new>
#endif

namespace tandem {

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
