// Fingerprint list: the final weights of each fingerprint job, as a file that
// the jobs of a later build are compared with.
//
//   # AMD EPYC (avx2, avx512_f)
//   layout/single 4f8e...
//   layout/ddp_2 failed
//
// For tests.

#ifndef TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_LIST_H_
#define TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_LIST_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/e2e/fingerprints/fingerprint_jobs.h"

namespace tandem {

// Stands in place of the fingerprint of a job that has failed.
constexpr char kFailed[] = "failed";

struct FingerprintList {
  // DescribeProcessor() where the jobs ran: kernels are chosen by what the
  // processor can do, and differ in the last bits.
  std::string processor;
  // Names, and weights_sha256 or kFailed.
  std::vector<std::pair<std::string, std::string>> jobs;
};

// What the file holds.
std::string FingerprintText(const FingerprintList& list);

// InvalidArgument if `text` is not what FingerprintText gives.
absl::StatusOr<FingerprintList> ParseFingerprints(absl::string_view text);

// A line for each job that has failed, that has another fingerprint than in
// `recorded`, or that only `recorded` has. A job that `recorded` does not have
// differs from nothing.
std::vector<std::string> DifferentFingerprints(const FingerprintList& recorded,
                                               const FingerprintList& found);

// The job's weights_sha256 by the program `train` (kTrain, or a path). An error
// has what the program said and the flags that it was given.
absl::StatusOr<std::string> RunForFingerprint(const std::string& train,
                                              const FingerprintJob& job);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_FINGERPRINTS_FINGERPRINT_LIST_H_
