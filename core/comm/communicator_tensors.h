// Checks and copies of a communicator's tensors for its backend.

#ifndef TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_
#define TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "core/device/host_memory.h"

namespace tandem {

// "Float on cpu".
std::string TypeOf(const at::Tensor& tensor);

// InvalidArgument, naming operation and group, for a tensor that the group's
// collectives do not take.
absl::Status CheckTensor(const Communicator& group, absl::string_view operation,
                         const at::Tensor& tensor);

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
