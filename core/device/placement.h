// Placement: a tensor on the device where it is needed.

#ifndef TANDEM_CORE_DEVICE_PLACEMENT_H_
#define TANDEM_CORE_DEVICE_PLACEMENT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace tandem {

// `tensor` on `device`: itself, or a copy. The host waits for a copy from its
// pageable memory, or to itself; not for one from pinned memory, which goes
// beside what the device computes, and must not be written before the device's
// current stream has come so far (LibTorch's allocator sees to it that it is
// not given to somebody else).
at::Tensor PlaceOn(c10::Device device, const at::Tensor& tensor);

// The device's stream of those copies.
c10::Stream CopyStream(c10::Device device);

// `tensor`, which nobody else will use, through pinned memory, so that the host
// does not wait.
at::Tensor SendTo(c10::Device device, const at::Tensor& tensor);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_PLACEMENT_H_
