// Runs a fingerprint job. For tests.

#ifndef TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_RUN_H_
#define TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "tests/e2e/fingerprints/fingerprint_jobs.h"

namespace tandem {

// The job's weights_sha256 by the program `train` (kTrain, or a path). An error
// has what the program said and the flags that it was given.
absl::StatusOr<std::string> RunForFingerprint(const std::string& train,
                                              const FingerprintJob& job);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_RUN_H_
