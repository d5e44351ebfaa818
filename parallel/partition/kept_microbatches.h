// Microbatches in flight: what a schedule's devices keep from forward to
// backward, moment by moment.

#ifndef TANDEM_PARALLEL_PARTITION_KEPT_MICROBATCHES_H_
#define TANDEM_PARALLEL_PARTITION_KEPT_MICROBATCHES_H_

#include <vector>

#include "parallel/partition/balance.h"
#include "parallel/schedule/activation_checkpointing.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// By device, its stages as parts. A microbatch is kept from its forward to the
// end of its backward (of the second part, where there are two): its input, and
// its activations, unless these are computed again; then they are there from
// the beginning of backward on.
std::vector<BalanceDevice> KeptMicrobatches(
    const Schedule& schedule,
    ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever);

// How many microbatches each stage keeps at once, at most.
std::vector<int> MicrobatchesAlive(const Schedule& schedule);

// The part of the microbatches whose forward is computed twice.
double RecomputedShare(ActivationCheckpointing checkpointing, int microbatches);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_KEPT_MICROBATCHES_H_
