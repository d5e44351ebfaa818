// Pinned memory: pages of the host's that stay where they are, so that a GPU
// copies from and to them by itself.

#ifndef TANDEM_CORE_DEVICE_PINNED_MEMORY_H_
#define TANDEM_CORE_DEVICE_PINNED_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace tandem {

// [bytes] of kByte on the CPU, uninitialised, for copies between the host and
// `device`: pinned if that is a GPU and its driver can, else as any memory. It
// takes so much and no more, and is given back with the last view of it.
// (LibTorch's own, of Tensor::pin_memory, takes the next power of two, and
// keeps it for as long as the process lives: for what is small or comes and
// goes.)
//
// Throws std::bad_alloc, and LibTorch's errors.
at::Tensor NewPinned(int64_t bytes, c10::Device device);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_PINNED_MEMORY_H_
