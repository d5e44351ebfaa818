// Checks and copies of a communicator's tensors for its backend.

#ifndef TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_
#define TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_

#include <ATen/core/Tensor.h>

#include "core/device/host_memory.h"

namespace tandem {

// The tensor's own bytes: backends know few dtypes, and moving needs none.
inline at::Tensor BytesOf(const at::Tensor& tensor) {
  return tensor.detach().view({-1}).view(at::kByte);
}

// What a backend is given: a CPU tensor over the same memory where there is
// one.
inline at::Tensor ForBackend(const at::Tensor& tensor) {
  at::Tensor host = HostView(tensor);
  return host.defined() ? host : tensor.detach();
}

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_
