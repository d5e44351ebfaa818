// A link between two hosts that fails in the middle of a job, and a host that
// dies: who is left ends, or starts again, and names who is gone.

#include <iostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/network_hosts/host_jobs.h"
#include "tests/e2e/network_hosts/own_namespaces.h"
#include "tests/e2e/train/fault_ranks.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

class HostFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why_not().empty()) GTEST_SKIP() << hosts_.why_not();
  }

  // That runs until something ends it, with its third step done.
  Programs StartLongJob(const Flags& more = {}) {
    Programs programs = StartLaunchers(
        hosts_, 2, 1, Joined(FaultJob("gloo", kShortTimeout), more));
    EXPECT_TRUE(programs[0]->WaitForOutput("step 3"));
    return programs;
  }

  NetworkHosts hosts_{2};
};

TEST_F(HostFaultsTest, ALostLinkEndsBothSidesWhichNameEachOther) {
  int cells = 0;
  for (const bool with_cable : {true, false}) {
    std::cout << "cell: " << (with_cable ? "dropped packets" : "a cut link")
              << "\n";
    const Programs programs = StartLongJob();
    with_cable ? hosts_.Drop(1) : hosts_.Cut(1);
    for (int host = 0; host < 2; ++host) {
      const ProgramResult result = programs[host]->Wait();
      std::cout << host << " ended with " << result.exit_code << "\n" << result.err << "\n";
    }
    hosts_.Mend(1);
    ++cells;
  }
  std::cout << cells << " cells\n";
}

TEST_F(HostFaultsTest, AHostThatDiesIsNamed) {
  for (const int dead : {1, 0}) {
  const Programs programs = StartLongJob();
  hosts_.Kill(dead);
  const ProgramResult result = programs[1 - dead]->Wait();
      std::cout << dead << " died. ended with " << result.exit_code << "\n" << result.err << "\n";
    hosts_.Mend(dead);
  }
}

}  // namespace
}  // namespace tandem
