// Two nodes, each with a launcher of its own, one of which has a rank that dies
// or refuses before the ranks are connected: the other node ends soon, and says
// whose fault it is.

#include <chrono>
#include <memory>
#include <string>

#include "core/store/sockets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/train/fault_ranks.h"

namespace tandem::creation_fault_test {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr int kTimeout = 90;  // seconds; it plays no part

class CreationFaultTest : public testing::Test {
 protected:
  // A node of one rank; node 0's launcher serves the store.
  std::unique_ptr<Program> Node(int node, const std::string& fault,
                                const Flags& more = {}) const {
    Flags flags = FaultJob("shm", kTimeout);
    for (const std::string& flag :
         {std::string("--nnodes=2"), "--node_rank=" + std::to_string(node),
          std::string("--nproc_per_node=1"),
          std::string("--master_addr=127.0.0.1"),
          "--master_port=" + std::to_string(port_)}) {
      flags.push_back(flag);
    }
    flags.insert(flags.end(), more.begin(), more.end());
    ProgramOptions options;
    options.environment = {{"TANDEM_FAULT", fault}};
    return std::make_unique<Program>(kTrain, flags, options);
  }

  // Node 0 waits when node 1 comes, and fails as `fault` or `more` has it.
  void ExpectNode0Says(const std::string& what, const std::string& fault,
                       const Flags& more = {}) {
    const auto first = Node(0, "");
    ASSERT_TRUE(
        ConnectWhenServed("127.0.0.1", port_, std::chrono::minutes(1)).ok());
    const auto second = Node(1, fault, more);
    EXPECT_NE(second->Wait().exit_code, 0);
    const auto out = steady_clock::now();
    const ProgramResult result = first->Wait();
    EXPECT_LT(steady_clock::now() - out, kTimeToSay);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the job has failed: " + what));
    EXPECT_TRUE(first->LivingProcesses().empty());
  }

  const int port_ = FreePort();
};

TEST_F(CreationFaultTest, ARankKilledBeforeItComesIsNamed) {
  ExpectNode0Says("rank 1 died: killed by signal 9 (SIGKILL)",
                  "point=meet,rank=1,action=kill");
}

TEST_F(CreationFaultTest, ARankKilledBeforeItConnectsIsNamed) {
  ExpectNode0Says("rank 1 died: killed by signal 9 (SIGKILL)",
                  "point=connect,rank=1,action=kill");
}

TEST_F(CreationFaultTest, WhatARankFailsWithIsTold) {
  ExpectNode0Says("rank 1 gave up: group \"world\", rank 1 of 2: a fault",
                  "point=connect,rank=1,action=fail");
}

// Its launcher does, before there is a rank.
TEST_F(CreationFaultTest, AFlagThatANodeRefusesIsTold) {
  ExpectNode0Says("rank 1 gave up: ", "", {"--learning_rate=-1"});
}

}  // namespace
}  // namespace tandem::creation_fault_test
