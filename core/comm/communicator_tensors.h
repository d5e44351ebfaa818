// Checks and copies of a communicator's tensors for its backend.

#ifndef TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_
#define TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/flight/recorder.h"

namespace c10d {
class Backend;
}

namespace tandem {

// "Float on cpu".
std::string DescribeType(const at::Tensor& tensor);

// InvalidArgument, naming operation and group, for a tensor that the group's
// collectives do not take.
absl::Status CheckTensor(const Communicator& group, absl::string_view operation,
                         const at::Tensor& tensor);

// A collective of the tensor, undefined where there is none, or a message, for
// the flight recorder. It points to the tensor's sizes.
FlightOperation TensorFlight(const char* name, const at::Tensor& tensor,
                             int peer = -1);

// The tensor's own bytes: backends know few dtypes, and moving needs none.
inline at::Tensor ByteView(const at::Tensor& tensor) {
  return tensor.detach().view({-1}).view(at::kByte);
}

// Is it the device's backend that takes the tensor, on streams?
bool IsOnStreams(const Communicator& group, const at::Tensor& tensor);

// What a backend is given: the tensor itself, a CPU tensor over the same memory
// where the host's backend takes it, or a copy of it on the host
// (CommunicatorOptions::stages_on_host).
at::Tensor ForBackend(const Communicator& group, const at::Tensor& tensor);

// `pending`, of a collective that writes to `given`, which ForBackend made of
// `tensor`: has the tensor written when it has been waited for.
PendingCollective WithCopyBack(PendingCollective pending,
                               const at::Tensor& given,
                               const at::Tensor& tensor);

// The backend of a tensor as backends are given it. Not through c10d's
// dispatcher: it takes longer than a small all-reduce.
c10d::Backend& TensorBackend(const Communicator& group,
                             const at::Tensor& given);

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_
