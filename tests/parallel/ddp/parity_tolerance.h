// Tolerances of the parity jobs: how far a processor that is not the one on
// which Python's results were recorded may be from them. For tests.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_TOLERANCE_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_TOLERANCE_H_

#include "tests/parallel/ddp/parity_cases.h"

namespace tandem {

// Of each element.
struct ParityTolerance {
  double gradients;  // those of the first step
  double weights;    // the final ones
};

// It follows from the job's arithmetic alone; parity_tolerance.cc says how. A
// learning rate that is off by a hundredth goes beyond it where gradients are
// sent as they are, and a sum in place of a mean does in every job
// (parity_tolerance_test.cc).
ParityTolerance ToleranceOf(const ParityCase& job, int ranks);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_PARITY_TOLERANCE_H_
