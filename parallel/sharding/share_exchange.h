// Exchange of optimizer shares: values that each rank has stepped, and state
// that each rank keeps a part of (ZeRO stage 1).

#ifndef TANDEM_PARALLEL_SHARDING_SHARE_EXCHANGE_H_
#define TANDEM_PARALLEL_SHARDING_SHARE_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer_share.h"

namespace tandem {

// This rank's share of a buffer where a group's ranks, which have the same
// buffers, share the optimizer: all of one whose gradients are not averaged
// over them (parameters_to_ignore).
OptimizerShare ShareIn(const Communicator& group, const FlatBuffer& buffer);

// After every rank has stepped its own share: all have all values of what they
// share, in place, bit for bit those of their owners. Fewest copies where
// values() lie in a group buffer (core/comm/group_buffer.h). Collective; errors
// are Communicator's, and name the step, counted from 1.
absl::Status GatherValues(const FlatBufferList& buffers, Communicator& group,
                          int64_t step);

// `mine` are this rank's elements of a state of `buffer`: on the group's first
// rank all of them, [buffer's size], in the host's memory; elsewhere undefined.
// They come in pieces of the largest parameter's size, so that no device holds
// more than one that is not its own. Collective; errors are Communicator's.
absl::StatusOr<at::Tensor> GatherOnFirst(const FlatBuffer& buffer,
                                         const at::Tensor& mine,
                                         Communicator& group);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SHARDING_SHARE_EXCHANGE_H_
