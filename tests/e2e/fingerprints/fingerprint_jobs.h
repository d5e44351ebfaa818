// Fingerprint jobs: small jobs whose final weights, all together, show whether
// a change of the code has changed a bit: one for each layout, schedule,
// technique, dtype, backend and kind of device. For tests.

#ifndef TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_JOBS_H_
#define TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_JOBS_H_

#include <string>
#include <vector>

#include "tests/e2e/train/runs.h"

namespace tandem {

struct FingerprintJob {
  std::string name;  // "KIND/NAME", without spaces: "layout/ddp_2"
  Flags flags;
  // Unless it is empty, a run with these flags as well comes first and saves
  // where it ends, and the job goes on from there.
  Flags first_part = {};
};

// Each takes a second or two, and ends with the same weights each time: none
// has kernels that are chosen by time, or servers that do not wait. `text` is a
// folder of token files (NewText, tests/e2e/train/runs.h).
std::vector<FingerprintJob> FingerprintJobs(const std::string& text);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_JOBS_H_
