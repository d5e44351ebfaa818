// A pipeline of which one stage dies, freezes, fails or hangs, at a named point
// of a step: what the others say, how soon all is over, and that nothing is
// left.

#include <signal.h>

#include <chrono>
#include <iostream>
#include <regex>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/faults/fault_ranks.h"

namespace tandem::pipeline_fault_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = FaultRanks::Clock;

constexpr int kRanks = 2;
constexpr int kCells = 36;

// What a stage that hangs says once the timeout has passed; on a device with
// streams, where it may wait for another rank, once more.
std::string Hung() {
  return "has been computing for (" + std::to_string(kShortTimeout) + "|" +
         std::to_string(2 * kShortTimeout) + ")s";
}

Flags PipelineJob(int timeout_s, const Flags& more) {
  return Joined(Small("--strategy=pipeline --epochs=1000 --microbatches=4 "
                      "--timeout=" +
                      std::to_string(timeout_s)),
                more);
}

Flags RanksJob(const std::string& backend, int timeout_s) {
  return PipelineJob(timeout_s, Joined(BackendFlags(backend), {"--pipe=2"}));
}

int TimeoutFor(const std::string& action) {
  return action == "kill" || action == "fail" ? kLongTimeout : kShortTimeout;
}

// "stage:S:forward:1" of the stage of `rank`.
std::string PointOn(const std::string& point, int rank) {
  return point == "before_optimizer"
             ? point
             : "stage:" + std::to_string(rank) + ":" + point;
}

bool Says(const std::string& said, const std::string& expression) {
  return std::regex_search(said, std::regex(expression));
}

// "point=forward:1" of one rank of two: backend, point, action, culprit.
using Cell = std::tuple<std::string, std::string, std::string, int>;

class PipelineFaultTest : public testing::TestWithParam<Cell> {};

// The survivor's stage waits for a microbatch, or its rank for the loss.
TEST_P(PipelineFaultTest, TheOtherRankNamesTheCulpritInTime) {
  const auto& [backend, point, action, culprit] = GetParam();
  std::cout << backend << ", " << point << ", " << action << ", rank "
            << culprit << "\n";
  FaultRanks ranks(RanksJob(backend, TimeoutFor(action)), culprit,
                   FaultAt(PointOn(point, culprit), culprit, action), {},
                   kRanks);
  ASSERT_TRUE(ranks.AwaitFault());
  const auto out = Clock::now();
  const int other = 1 - culprit;
  const ProgramResult result = ranks[other].Wait();
  const auto bound = seconds(action == "stop" ? kShortTimeout : 0) + kTimeToSay;
  EXPECT_LT(Clock::now() - out, bound);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(RanksBlamed(result.err), ElementsAre(culprit)) << result.err;
  // It waits to receive one of them, or until the other was received.
  const std::string wait =
      "(gradients of microbatch [0-3] for|activations of microbatch [0-3] from)"
      " stage 0";
  // The last stage may have done its part by then.
  const bool may_be_done =
      point == "before_optimizer" || (other == 1 && point == "backward:2");
  const std::string where =
      "microbatch [0-3] in stage " + std::to_string(other) + ".*" + wait;
  // A host that goes on while a stream waits tells of the wait alone.
  const std::string told = backend == "sim_nccl" ? wait : where;
  EXPECT_TRUE(Says(result.err, may_be_done ? told + "|the loss" : told))
      << result.err;
  ranks.ExpectNoProcessLeft();
}

INSTANTIATE_TEST_SUITE_P(
    Cells, PipelineFaultTest,
    testing::Combine(testing::Values("shm", "gloo", "sim_nccl"),
                     testing::Values("forward:1", "backward:2",
                                     "before_optimizer"),
                     testing::Values("kill", "stop"), testing::Values(0, 1)));

TEST(PipelineFaultTestCells, NoneIsMissing) {
  EXPECT_EQ(TestsIn("Cells/PipelineFaultTest"), kCells);
}

class PipelineBackendTest : public testing::TestWithParam<const char*> {};

TEST_P(PipelineBackendTest, AStageThatThrowsIsToldByAll) {
  for (const int culprit : {0, 1}) {
    for (const std::string point : {"forward:1", "backward:2"}) {
      const std::string where = PointOn(point, culprit);
      FaultRanks ranks(RanksJob(GetParam(), kLongTimeout), culprit,
                       FaultAt(where, culprit, "fail"), {}, kRanks);
      ASSERT_TRUE(ranks[culprit].WaitForOutput("TANDEM_FAULT acts at"));
      const auto failed = Clock::now();
      for (int rank = 0; rank < kRanks; ++rank) {
        const ProgramResult result = ranks[rank].Wait();
        EXPECT_LT(Clock::now() - failed, kTimeToSay) << "rank " << rank;
        EXPECT_EQ(result.exit_code, 1) << result.err;
        EXPECT_THAT(result.err, HasSubstr("asked for at " + where));
        EXPECT_THAT(result.err,
                    HasSubstr("in stage " + std::to_string(culprit)));
        EXPECT_THAT(RanksBlamed(result.err), ElementsAre()) << result.err;
      }
      ranks.ExpectNoProcessLeft();
    }
  }
}

// It says itself where it hangs, before the other rank gives up or just after.
TEST_P(PipelineBackendTest, AStageThatHangsEndsTheJob) {
  FaultRanks ranks(RanksJob(GetParam(), kShortTimeout), 1,
                   FaultAt("stage:1:forward:1", 1, "delay:60"), {}, kRanks);
  ASSERT_TRUE(ranks[1].WaitForOutput("TANDEM_FAULT acts at"));
  const auto hung = Clock::now();
  const ProgramResult waiting = ranks[0].Wait();
  EXPECT_EQ(waiting.exit_code, 1) << waiting.err;
  EXPECT_TRUE(
      Says(waiting.err,
           "not heard of: rank 1|rank 1 gave up: forward of microbatch 1 "
           "in stage 1, on cpu " +
               Hung()))
      << waiting.err;
  // On streams a send waits for its receive.
  EXPECT_TRUE(Says(waiting.err,
                   "gradients of microbatch [0-3] for stage 0|send to rank 1 "
                   "\\(activations of microbatch [0-3] from stage 0"))
      << waiting.err;
  const ProgramResult hanging = ranks[1].Wait();
  EXPECT_EQ(hanging.exit_code, 1) << hanging.err;
  EXPECT_THAT(hanging.err, HasSubstr("forward of microbatch 1 in stage 1"));
  EXPECT_TRUE(Says(hanging.err, Hung())) << hanging.err;
  EXPECT_LT(Clock::now() - hung, seconds(kShortTimeout) + kTimeToSay);
  ranks.ExpectNoProcessLeft();
}

TEST_P(PipelineBackendTest, ALateStageIsWaitedFor) {
  Flags flags = RanksJob(GetParam(), kLongTimeout);
  flags.push_back("--max_steps=4");
  FaultRanks ranks(flags, 1, FaultAt("stage:1:backward:1", 1, "delay:1.5"), {},
                   kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const ProgramResult result = ranks[rank].Wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  ranks.ExpectNoProcessLeft();
}

INSTANTIATE_TEST_SUITE_P(Backends, PipelineBackendTest,
                         testing::Values("shm", "gloo", "sim_nccl"));

// Its stages wait for streams alone.
TEST(PipelineInterruptTest, EndsTheWaitForAStageThatIsAbsent) {
  Flags flags = RanksJob("sim_nccl", 4 * kLongTimeout);
  flags.push_back("--stop_grace=10");
  FaultRanks ranks(flags, 1, FaultAt("stage:1:forward:1", 1, "stop"), {},
                   kRanks);
  ASSERT_TRUE(ranks.AwaitFault());
  ranks[0].Signal(SIGINT);
  const auto asked = Clock::now();
  const ProgramResult result = ranks[0].Wait();
  EXPECT_LT(Clock::now() - asked, kTimeToSay);
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
  EXPECT_TRUE(Says(result.err,
                   "stopped by SIGINT while it waited: .*of microbatch [0-3]"))
      << result.err;
  ranks.ExpectNoProcessLeft();
}

// Two devices of one process.
class PipelineDeviceTest : public testing::TestWithParam<const char*> {
 protected:
  // Runs until the fault has ended it, within `bound` from then.
  static ProgramResult Run(const std::string& point, const std::string& action,
                           seconds bound) {
    ProgramOptions options;
    options.environment = {
        {"TANDEM_FAULT", "point=" + point + ",step=3,action=" + action}};
    Program program(kTrain,
                    PipelineJob(TimeoutFor(action),
                                {"--devices_per_rank=2",
                                 "--device=" + std::string(GetParam())}),
                    options);
    EXPECT_TRUE(program.WaitForOutput("TANDEM_FAULT acts at"));
    const auto out = Clock::now();
    ProgramResult result = program.Wait();
    EXPECT_LT(Clock::now() - out, bound) << result.err;
    EXPECT_TRUE(program.LivingProcesses().empty());
    return result;
  }
};

TEST_P(PipelineDeviceTest, AStageThatThrowsIsNamed) {
  for (const std::string stage : {"0", "1"}) {
    for (const std::string what : {"forward", "backward"}) {
      const ProgramResult result =
          Run("stage:" + stage + ":" + what + ":2", "fail", kTimeToSay);
      EXPECT_EQ(result.exit_code, 1) << result.err;
      EXPECT_THAT(result.err, HasSubstr("train: training step: " + what +
                                        " of microbatch 2 in stage " + stage));
    }
  }
}

TEST_P(PipelineDeviceTest, AnUpdateThatThrowsIsNamed) {
  const ProgramResult result = Run("before_optimizer", "fail", kTimeToSay);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("asked for at before_optimizer of step 3"));
}

TEST_P(PipelineDeviceTest, AStageThatHangsEndsTheProcess) {
  for (const std::string stage : {"0", "1"}) {
    const ProgramResult result =
        Run("stage:" + stage + ":backward:2", "delay:60",
            seconds(kShortTimeout) + kTimeToSay);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(Says(result.err, "backward of microbatch 2 in stage " + stage +
                                     ", on .* " + Hung()))
        << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PipelineDeviceTest,
                         testing::Values("cpu", "sim"));

}  // namespace
}  // namespace tandem::pipeline_fault_test
