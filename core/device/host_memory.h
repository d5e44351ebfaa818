// Devices whose memory is the host's, though their tensors say otherwise: the
// CPU, and simulated ones. What works on raw memory, or knows the CPU's kernels
// alone, asks here instead of for the CPU.

#ifndef TANDEM_CORE_DEVICE_HOST_MEMORY_H_
#define TANDEM_CORE_DEVICE_HOST_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <vector>

namespace tandem {

// Do operators on such a device run the CPU's kernels?
bool RunsCpuKernels(c10::DeviceType type);

// A CPU tensor over the same memory, without autograd, when the device has done
// what the calling thread's stream has queued: a CPU tensor itself. Undefined
// for a device whose memory the host cannot reach. Copies nothing, and keeps
// the memory.
at::Tensor HostView(const at::Tensor& tensor);

// Makes `type` such a device. For the code that makes one; once, before other
// threads ask.
using HostViewFunction = at::Tensor (*)(const at::Tensor&);
void RegisterHostMemory(c10::DeviceType type, HostViewFunction view);

// The elements of all tensors as doubles, one tensor after the other: one copy,
// and one wait, for each device that they lie on. Whole numbers are exact up to
// 2^53. Throws LibTorch's exceptions.
std::vector<double> ReadNumbers(const std::vector<at::Tensor>& tensors);

// Pinned memory: pages of the host's that stay where they are, so that a GPU
// copies from and to them by itself.
//
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

#endif  // TANDEM_CORE_DEVICE_HOST_MEMORY_H_
