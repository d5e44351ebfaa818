// For tests: what Python made of the parity jobs, and comparison with it.

#ifndef TANDEM_TESTS_PARALLEL_DDP_PARITY_CHECK_H_
#define TANDEM_TESTS_PARALLEL_DDP_PARITY_CHECK_H_

#include <string>

#include "tests/parallel/ddp/parity_cases.h"

namespace tandem {

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
