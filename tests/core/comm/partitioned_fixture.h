// Fixture of all-gather, reduce-scatter and all-to-all: ranks as threads on
// every backend of host tensors.

#ifndef TANDEM_TESTS_CORE_COMM_PARTITIONED_FIXTURE_H_
#define TANDEM_TESTS_CORE_COMM_PARTITIONED_FIXTURE_H_

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/testing/thread_ranks.h"

namespace tandem {

// The parameter is "shm", "gloo", or "hosts": shm over two hosts, ranks in turn
// on one and on the other.
class PartitionedFixture : public ::testing::TestWithParam<std::string> {
 protected:
  static CommunicatorOptions Options(std::chrono::milliseconds timeout) {
    CommunicatorOptions options;
    options.timeout = timeout;
    if (GetParam() == "gloo") options.backend = "gloo";
    if (GetParam() == "hosts") {
      options.host = absl::StrCat("host", ThisThreadsRank() % 2);
    }
    return options;
  }

  static absl::Status OnRanks(
      int n, const std::function<absl::Status(Communicator&)>& fn,
      std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    return RunThreadRanks(
        n, fn, [=] { return Options(timeout); }, timeout);
  }

  // On ranks that compare what they start.
  static absl::Status OnCheckedRanks(
      int n, const std::function<absl::Status(Communicator&)>& fn) {
    const std::chrono::minutes timeout(10);
    const auto options = [=] {
      CommunicatorOptions checked = Options(timeout);
      checked.check_collectives = true;
      return checked;
    };
    return RunThreadRanks(n, fn, options, timeout);
  }
};

inline absl::Status Wait(absl::StatusOr<PendingCollective> started) {
  TANDEM_RETURN_IF_ERROR(started.status());
  return started->Wait();
}

// Rank `rank`'s part of a flat tensor that has one for each.
inline at::Tensor PartOf(const at::Tensor& all, int rank, int ranks) {
  const int64_t n = all.numel() / ranks;
  return all.narrow(0, rank * n, n);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_COMM_PARTITIONED_FIXTURE_H_
