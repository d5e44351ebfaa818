// Checks and copies of a communicator's tensors for its backend.

#ifndef TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_
#define TANDEM_CORE_COMM_COMMUNICATOR_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/comm/collective_runner.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/flight/recorder.h"

namespace c10d {
class Backend;
struct ReduceOp;
}  // namespace c10d

namespace tandem {

// What starts the group's collectives; null where its size is 1.
CollectiveRunner* GroupRunner(const Communicator& group);

// "Float on cpu".
std::string DescribeType(const at::Tensor& tensor);

// InvalidArgument, naming operation and group, for a tensor that the group's
// collectives do not take.
absl::Status CheckTensor(const Communicator& group, absl::string_view operation,
                         const at::Tensor& tensor);

// The same for one that is to be summed.
absl::Status CheckSummand(const Communicator& group, const char* operation,
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

// Where it runs what it is given.
CollectiveRunner::Place RunPlace(const at::Tensor& given);

// Does the backend multiply a sum's terms by `factor` as exactly as a product
// of its own would? (All do by 1.)
bool Multiplies(const Communicator& group, double factor,
                const at::Tensor& tensor);
// Makes the product a part of `operation` where the backend can do that; else
// multiplies `tensor`.
void Multiply(const Communicator& group, double factor,
              const at::Tensor& tensor, c10d::ReduceOp* operation);

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
