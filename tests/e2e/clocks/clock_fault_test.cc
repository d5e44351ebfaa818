// Jobs whose processes have their wall clocks set by hours while a rank is
// frozen: the others name it after their timeout, neither at once, as a wait
// until a time of that clock would be over, nor hours later.

#include <chrono>
#include <iostream>
#include <ostream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/clocks/job_clocks.h"
#include "tests/e2e/faults/fault_ranks.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;

// --timeout, in seconds. One job starts at a time (StartTurn), so it may be
// shorter than kShortTimeout; the presubmit waits for it twice.
constexpr int kJumpTimeout = 6;

struct Cell {
  std::string backend;
  // Back by two hours, once, while the others wait, of which waits of
  // LibTorch's and Abseil's end later (docs/launching.md); or forwards by one
  // hour every 100 ms.
  bool back;
};

std::ostream& operator<<(std::ostream& out, const Cell& cell) {
  return out << cell.backend << (cell.back ? ", back" : ", forwards");
}

class ClockFaultTest : public testing::TestWithParam<Cell> {};

TEST_P(ClockFaultTest, AFrozenRankIsNamedAfterTheTimeout) {
  std::cout << "cell: " << GetParam() << "\n";
  Flags flags = FaultJob(GetParam().backend, kJumpTimeout);
  flags.push_back("--nproc_per_node=" + std::to_string(kFaultRanks));
  JobClocks clocks;
  StartTurn turn;
  Program launcher(
      kTrain, flags,
      clocks.Options(FaultOf("point=bucket:1,rank=1,step=3,action=stop")));
  ASSERT_TRUE(launcher.WaitForOutput("TANDEM_FAULT acts at"));
  const auto out = steady_clock::now();
  turn.End();
  if (GetParam().back) {
    std::this_thread::sleep_for(seconds(1));
    clocks.Jump(-2);
  } else {
    clocks.Start({1});
  }
  const ProgramResult result = launcher.Wait();
  const auto took = steady_clock::now() - out;
  // Since before the fault, where the culprit was late.
  EXPECT_GE(took, seconds(kJumpTimeout) / 2) << result.err;
  EXPECT_LT(took, seconds(kJumpTimeout) + kTimeToSay) << result.err;
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(RanksBlamed(result.err), ElementsAre(1)) << result.err;
  EXPECT_TRUE(launcher.LivingProcesses().empty());
  for (const int rank : {0, 2}) {
    EXPECT_GE(clocks.JumpsSeen(rank), 1) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, ClockFaultTest,
                         testing::Values(Cell{"shm", false},
                                         Cell{"gloo", false},
                                         Cell{"sim_nccl", false},
                                         Cell{"shm", true}));

}  // namespace
}  // namespace tandem
