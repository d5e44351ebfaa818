// All ranks' tensors at once, for tests whose models are small.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_GATHER_ON_RANK0_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_GATHER_ON_RANK0_H_

#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/comm/communicator.h"

namespace tandem {

// Copies of every rank's tensors, by name, on rank 0; none on other ranks.
// Collective, as StreamToRank0 (parallel/strategy/gathered_tensors.h).
absl::StatusOr<NamedTensors> GatherOnRank0(const NamedTensors& mine,
                                           Communicator& group);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_GATHER_ON_RANK0_H_
