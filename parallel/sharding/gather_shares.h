// All-gather of shares: each rank's elements of a flat buffer, to all ranks.

#ifndef TANDEM_PARALLEL_SHARDING_GATHER_SHARES_H_
#define TANDEM_PARALLEL_SHARDING_GATHER_SHARES_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

// What is gathered, for errors: of this rank, or of all at once.
using SharesPurpose = std::function<std::string(std::optional<int> rank)>;

// Begins to gather all ranks' shares (ShareSpan) of a buffer: `whole` is as the
// buffer lies, `mine` this rank's share, in its place there or elsewhere. Where
// shares are equal it is one all-gather, which the result waits for; else a
// broadcast of each rank's, which has ended. Fewest copies where `whole` lies
// in a group buffer (core/comm/group_buffer.h). Nobody's versions change.
// Collective; errors are Communicator's.
absl::StatusOr<PendingCollective> StartGatherShares(
    const FlatBuffer& buffer, const at::Tensor& whole, const at::Tensor& mine,
    Communicator& group, const SharesPurpose& purpose);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SHARDING_GATHER_SHARES_H_
