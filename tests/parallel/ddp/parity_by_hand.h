// A parity job of two ranks without DistributedDataParallel: both networks on
// the calling thread, the gradients' mean written out. For tests.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_BY_HAND_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_BY_HAND_H_

#include <vector>

#include "tests/parallel/ddp/parity_cases.h"

namespace tandem {

// Whether a job has the bits that TrainByHand gives, on every processor: a sum
// of two numbers has no order, and halving is exact. Not so with PowerSGD, with
// clipping by norm (a sum over all gradients), and with tandem's optimizers
// (docs/ddp.md).
bool HasBitsByHand(const ParityCase& job, int ranks);

// The results of rank 0 and rank 1. Requires HasBitsByHand(job, 2).
std::vector<ParityResult> TrainByHand(const ParityCase& job);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PARITY_BY_HAND_H_
