// A rank that dies or freezes at a named point under tandem's own launchers,
// which serve the store and stop the others: what is said, how soon all is
// over, and that nothing is left. And a rank of another node that dies or
// refuses before the ranks are connected.

#include <chrono>
#include <iostream>
#include <memory>
#include <regex>
#include <string>
#include <tuple>

#include "core/store/sockets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/faults/fault_ranks.h"

namespace tandem::launched_fault_test {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Backend, culprit.
using Cell = std::tuple<std::string, int>;

class LaunchedFaultTest : public testing::TestWithParam<Cell> {
 protected:
  // Runs a job whose culprit is hit in step 3, and expects it to be over within
  // `bound` from then, with nothing left.
  ProgramResult Run(const std::string& action, int timeout, seconds bound) {
    const auto& [backend, culprit] = GetParam();
    std::cout << "cell: " << backend << ", " << action << ", rank " << culprit
              << ", under the launcher\n";
    Flags flags = FaultJob(backend, timeout);
    flags.push_back("--nproc_per_node=" + std::to_string(kFaultRanks));
    ProgramOptions options;
    options.environment = {
        {"TANDEM_FAULT", "point=bucket:1,rank=" + std::to_string(culprit) +
                             ",step=3,action=" + action}};
    StartTurn turn;
    Program launcher(kTrain, flags, options);
    EXPECT_TRUE(launcher.WaitForOutput("TANDEM_FAULT acts at"));
    const auto out = steady_clock::now();
    turn.End();
    ProgramResult result = launcher.Wait();
    EXPECT_LT(steady_clock::now() - out, bound) << result.err;
    EXPECT_TRUE(launcher.LivingProcesses().empty());
    return result;
  }
};

TEST_P(LaunchedFaultTest, AKilledRankIsNamedAtOnce) {
  const int culprit = std::get<1>(GetParam());
  const ProgramResult result = Run("kill", kLongTimeout, kTimeToSay);
  EXPECT_EQ(result.exit_code, 128 + 9) << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("rank " + std::to_string(culprit) +
                             " of 3 \\(pid [0-9]+\\) died: .*SIGKILL")))
      << result.err;
  EXPECT_FALSE(std::regex_search(
      result.err,
      std::regex("rank [" + std::string(culprit == 0 ? "12" : "02") +
                 "] of 3 \\(pid [0-9]+\\) died")))
      << result.err;
}

// The launcher cannot tell a frozen rank from a busy one; the others can.
TEST_P(LaunchedFaultTest, AFrozenRankIsNamedByTheOthersAndEnded) {
  const ProgramResult result =
      Run("stop", kShortTimeout, seconds(kShortTimeout) + kTimeToSay);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(RanksBlamed(result.err), ElementsAre(std::get<1>(GetParam())))
      << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("bucket [0-2] \\(fc[^)]*\\) of step 3")))
      << result.err;
}

INSTANTIATE_TEST_SUITE_P(Cells, LaunchedFaultTest,
                         testing::Combine(testing::Values("shm", "gloo",
                                                          "sim_nccl"),
                                          testing::Values(0, 1)));

constexpr int kTimeout = 90;  // seconds; it plays no part

class CreationFaultTest : public testing::Test {
 protected:
  // A node of one rank; node 0's launcher serves the store.
  std::unique_ptr<Program> Node(int node, const std::string& fault,
                                const Flags& more = {}) const {
    return std::make_unique<Program>(
        kTrain,
        Joined(FaultJob("shm", kTimeout), NodeFlags(2, node, port_), more),
        FaultOf(fault));
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
}  // namespace tandem::launched_fault_test
