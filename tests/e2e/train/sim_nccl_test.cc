// train --device=sim --backend=sim_nccl, from end to end: layouts that train as
// over the host's memory, and jobs that are stopped, resumed, or lose a rank.

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem::sim_nccl_test {
namespace {

using ::testing::HasSubstr;

constexpr char kOnNccl[] = "--device=sim --backend=sim_nccl --sim_delay_us=20 ";

struct Layout {
  std::string name;
  std::string flags;
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"ddp", "--nproc_per_node=2"},
      {"pipeline", "--nproc_per_node=2 --pipe=2 --microbatch_size=2"},
      {"devices", "--devices_per_rank=2 --nproc_per_node=2"},
      {"hybrid", "--nproc_per_node=4 --pipe=2 --microbatch_size=2"}};
  return *layouts;
}

// Sums of two replicas have no order: the same numbers as on the CPU.
std::vector<SameRow> TechniqueRows() {
  std::vector<SameRow> rows = {
      {"clipped", Tiny("gpt_tiny_tied"), {"--clip_grad_norm=0.1"}},
      {"fp16", Tiny("mlp_small"), {"--dtype=fp16 --optimizer=adamw"}},
      {"sharded",
       Tiny("mlp_dropout"),
       {"--shard_optimizer=on --optimizer=adam"}},
      {"reproducible",
       Tiny("mlp_small"),
       {"--reproducible --microbatch_size=2 --optimizer=adamw"}}};
  for (SameRow& row : rows) {
    const std::string technique = std::exchange(row.others[0], kOnNccl);
    row.places.clear();
    for (const Layout& layout : Layouts()) {
      // A pipeline is one replica, which shares its optimizer with none.
      if (row.name == "sharded" && layout.name == "pipeline") continue;
      row.places.push_back(layout.flags + " " + technique);
    }
    row.comparison =
        Both(HasSteps(kTinySteps), Both(SameLosses(1e-6), SameBits));
  }
  return rows;
}

class SimNcclTest : public testing::TestWithParam<SameRow> {};

TEST_P(SimNcclTest, LayoutsTrainAsOverTheHostsMemory) {
  ExpectSame(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, SimNcclTest, testing::ValuesIn(TechniqueRows()),
                         RowName<SameRow>);

TEST(SimNcclTableTest, NoCellIsMissing) {
  EXPECT_EQ(CellsIn(TechniqueRows()), 15);
}

// Some seconds; the tenth step comes soon.
Flags StoppedJob(const Layout& layout, const std::string& more = "") {
  return Small("--epochs=20 --batch_size=12 --reproducible " + layout.flags +
               " --microbatch_size=3 " + kOnNccl + more);
}

class StoppedOnSimNcclTest : public testing::TestWithParam<Layout> {};

TEST_P(StoppedOnSimNcclTest, CtrlCAndResumeEndWithTheSameBits) {
  const std::string folder = NewFolder("stop");
  const Events straight = RunJobForEvents(StoppedJob(GetParam()));
  Program program(kTrain, StoppedJob(GetParam(), "--save_dir=" + folder));
  ASSERT_TRUE(program.WaitForOutput("step  10/160")) << program.Wait().err;
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
  EXPECT_TRUE(program.LivingProcesses().empty());
  const Events resumed =
      RunJobForEvents(StoppedJob(GetParam(), "--resume=" + folder));
  EXPECT_LT(EventsOf(resumed, "step").size(),
            EventsOf(straight, "step").size());
  EXPECT_EQ(Fingerprint(resumed), Fingerprint(straight));
}

TEST_P(StoppedOnSimNcclTest, AKilledRankEndsTheOthersAndIsNamed) {
  Program program(kTrain, StoppedJob(GetParam(), "--epochs=1000000"));
  ASSERT_TRUE(program.WaitForOutput("step      10/")) << program.Wait().err;
  const pid_t rank1 = PidOfRank(program, 1);
  ASSERT_NE(rank1, 0);
  ASSERT_EQ(kill(rank1, SIGKILL), 0);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
  EXPECT_TRUE(program.LivingProcesses().empty());
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoppedOnSimNcclTest,
                         testing::ValuesIn(Layouts()), RowName<Layout>);

}  // namespace
}  // namespace tandem::sim_nccl_test
