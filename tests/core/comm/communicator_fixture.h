// Communicator fixture: tests of communicators, by backend.

#ifndef TANDEM_TESTS_CORE_COMM_COMMUNICATOR_FIXTURE_H_
#define TANDEM_TESTS_CORE_COMM_COMMUNICATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "core/backend/communicator_options.h"
#include "core/comm/communicator.h"
#include "core/testing/thread_ranks.h"

namespace tandem {

// The parameter is the backend's name.
class CommunicatorFixture : public ::testing::TestWithParam<std::string> {};

inline std::string NameOfBackend(
    const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

// On the backend of the test under way; RunRanks as RunThreadRanks.
inline CommunicatorOptions WithTimeout(int milliseconds) {
  CommunicatorOptions options;
  options.backend = CommunicatorFixture::GetParam();
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}
inline absl::Status RunRanks(
    int n, const std::function<absl::Status(Communicator&)>& fn) {
  return RunThreadRanks(n, fn, WithTimeout(30000));
}

// An error that says `what`, unless it holds.
inline absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_COMM_COMMUNICATOR_FIXTURE_H_
