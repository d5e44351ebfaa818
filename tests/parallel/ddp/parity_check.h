// For tests: what Python made of the parity jobs, and comparison with it.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_CHECK_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_CHECK_H_

#include <string>
#include <vector>

#include "tests/parallel/ddp/parity_cases.h"

namespace tandem {

// Tolerances of each element: how far a processor that is not the one on which
// Python's results were recorded may be from them.
struct ParityTolerance {
  double gradients;  // those of the first step
  double weights;    // the final ones
};

// It follows from the job's arithmetic alone; parity_check.cc says how. A
// learning rate that is off by a hundredth goes beyond it where gradients are
// sent as they are, and a sum in place of a mean does in every job
// (parity_test.cc).
ParityTolerance ToleranceOf(const ParityCase& job, int ranks);

// Whether a job has the bits that TrainByHand gives, on every processor: a sum
// of two numbers has no order, and halving is exact. Not so with PowerSGD, with
// clipping by norm (a sum over all gradients), and with tandem's optimizers
// (tests/parallel/ddp/README.md).
bool HasBitsByHand(const ParityCase& job, int ranks);

// The results of rank 0 and rank 1 of a job without DistributedDataParallel:
// both networks on the calling thread, the gradients' mean written out.
// Requires HasBitsByHand(job, 2).
std::vector<ParityResult> TrainByHand(const ParityCase& job);

// What the script wrote down for a rank of this job.
ParityResult PythonsResult(const ParityCase& job, int ranks, int rank);

// Runs the job on `ranks` thread ranks and expects on each of them
//   - Python's result within ToleranceOf(job, ranks): it was recorded on one
//     processor, and this may be another;
//   - where the job HasBitsByHand, exactly what this processor makes of it
//     without data parallelism.
// The test's property `pythons_bits` says whether it was Python's to the bit.
void ExpectPythonsResult(const ParityCase& job, int ranks,
                         const std::string& backend);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PARITY_CHECK_H_
