// A link between two hosts that fails in the middle of a job, and a host that
// dies: whoever is left ends within the timeout, or starts again as often as it
// may, and names who is gone.

#include <chrono>
#include <iostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/network_hosts/host_jobs.h"
#include "tests/e2e/train/fault_ranks.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Of what one host says of the other.
constexpr char kRankGone[] = "not heard of: rank 1";
constexpr char kStoreGone[] =
    "not heard of: the launcher, which serves the store: it does not answer "
    "(10.77.0.1:29500)";

class HostFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why_not().empty()) GTEST_SKIP() << hosts_.why_not();
  }

  // That runs until something ends it, in the middle of its steps.
  Programs StartLongJob(const Flags& more = {}) {
    Programs programs = StartLaunchers(
        hosts_, 1, Joined(FaultJob("gloo", kShortTimeout), more));
    EXPECT_TRUE(programs[0]->WaitForOutput("loss"));
    fault_ = steady_clock::now();
    return programs;
  }

  // Within the timeout and what it takes to say so.
  ProgramResult Survivor(Program& program) {
    const ProgramResult result = program.Wait();
    EXPECT_LT(steady_clock::now() - fault_, seconds(kShortTimeout) + kTimeToSay)
        << result.err;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("of group \"world\""));
    return result;
  }

  NetworkHosts hosts_{2};
  steady_clock::time_point fault_;
};

TEST_F(HostFaultsTest, ALostLinkEndsBothSidesWhichNameEachOther) {
  for (const bool is_cut : {false, true}) {
    std::cout << "cell: " << (is_cut ? "a cut link" : "lost packets") << "\n";
    const Programs programs = StartLongJob();
    is_cut ? hosts_.Cut(1) : hosts_.Drop(1);
    EXPECT_THAT(Survivor(*programs[0]).err, HasSubstr(kRankGone));
    EXPECT_THAT(Survivor(*programs[1]).err, HasSubstr(kStoreGone));
    hosts_.Mend(1);
  }
  std::cout << "2 cells\n";
}

TEST_F(HostFaultsTest, ADeadHostIsNamed) {
  for (const int dead : {1, 0}) {
    std::cout << "cell: host " << dead << " dies\n";
    const Programs programs = StartLongJob();
    hosts_.Kill(dead);
    EXPECT_THAT(Survivor(*programs[1 - dead]).err,
                HasSubstr(dead == 1 ? kRankGone : kStoreGone));
    hosts_.Mend(dead);
  }
  std::cout << "2 cells\n";
}

// Node 0's launcher serves the store where launchers agree on an attempt.
TEST_F(HostFaultsTest, NoJobOutlivesTheHostOfTheStore) {
  const Programs programs = StartLongJob({"--max_restarts=2"});
  hosts_.Kill(0);
  EXPECT_THAT(Survivor(*programs[1]).err,
              AllOf(HasSubstr("cannot restart with the other nodes"),
                    HasSubstr("10.77.0.1:29500")));
}

}  // namespace
}  // namespace tandem
