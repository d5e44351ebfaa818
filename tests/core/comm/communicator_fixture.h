// Communicator fixture: tests of communicators, by backend.

#ifndef TANDEM_TESTS_CORE_COMM_COMMUNICATOR_FIXTURE_H_
#define TANDEM_TESTS_CORE_COMM_COMMUNICATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "core/backend/communicator_options.h"
#include "core/comm/communicator.h"

namespace tandem {

// The parameter is the backend's name.
class CommunicatorFixture : public ::testing::TestWithParam<std::string> {};

std::string NameOfBackend(const ::testing::TestParamInfo<std::string>& info);

// On the backend of the test under way; RunRanks as RunThreadRanks.
CommunicatorOptions WithTimeout(int milliseconds);
absl::Status RunRanks(int n,
                      const std::function<absl::Status(Communicator&)>& fn);

// An error that says `what`, unless it holds.
absl::Status Expect(bool holds, const std::string& what);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_COMM_COMMUNICATOR_FIXTURE_H_
