#include "tests/core/comm/communicator_fixture.h"

#include <chrono>

#include "core/testing/thread_ranks.h"

namespace tandem {

std::string NameOfBackend(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

CommunicatorOptions WithTimeout(int milliseconds) {
  CommunicatorOptions options;
  options.backend = CommunicatorFixture::GetParam();
  options.timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

absl::Status RunRanks(int n,
                      const std::function<absl::Status(Communicator&)>& fn) {
  return RunThreadRanks(n, fn, WithTimeout(30000));
}

absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
}

}  // namespace tandem
