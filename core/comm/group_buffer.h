// Group buffer: memory that a group of ranks reduces with the fewest copies.

#ifndef TANDEM_CORE_COMM_GROUP_BUFFER_H_
#define TANDEM_CORE_COMM_GROUP_BUFFER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// Zeros, [numel], 64-byte aligned, in the memory that the group's backend moves
// with the fewest copies (memory that ranks of one host share, where it has
// such): for buffers that live long and are reduced often. Every rank asks for
// the same sizes in the same order, for a tensor's place must be the same on
// all. It may outlive the communicator.
absl::StatusOr<at::Tensor> NewGroupBuffer(const Communicator& group,
                                          int64_t numel,
                                          const at::TensorOptions& options);

// Whether all of the group's ranks share the memory of its buffers on the CPU.
bool SharesMemory(const Communicator& group);

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_GROUP_BUFFER_H_
