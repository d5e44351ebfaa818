// Named tensors of several ranks, brought together on one.

#ifndef TANDEM_PARALLEL_GATHERED_TENSORS_H_
#define TANDEM_PARALLEL_GATHERED_TENSORS_H_

#include "absl/status/statusor.h"
#include "core/communicator.h"
#include "core/named_tensors.h"

namespace tandem {

// On rank 0 every rank's tensors, by rank: its own alias the live ones, others'
// are copies on the CPU. Elsewhere nothing. Tensors are dense, with at most 12
// dimensions. Collective.
absl::StatusOr<NamedTensors> GatherOnRank0(const NamedTensors& mine,
                                           Communicator& group);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_GATHERED_TENSORS_H_
