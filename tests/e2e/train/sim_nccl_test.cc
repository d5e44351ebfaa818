// train --device=sim --backend=sim_nccl, from end to end: layouts that train as
// over the host's memory, and jobs that are stopped, resumed, or lose a rank.

#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

const Flags& OnNccl() {
  static const auto* const flags =
      new Flags{"--device=sim", "--backend=sim_nccl", "--sim_delay_us=20"};
  return *flags;
}

struct Layout {
  std::string name;
  Flags flags;
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"ddp", {"--nproc_per_node=2"}},
      {"pipeline", {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=2"}},
      {"devices", {"--devices_per_rank=2", "--nproc_per_node=2"}},
      {"hybrid", {"--nproc_per_node=4", "--pipe=2", "--microbatch_size=2"}}};
  return *layouts;
}

struct Technique {
  std::string name;
  std::string model;
  Flags flags;
};

const std::vector<Technique>& Techniques() {
  static const auto* const techniques = new std::vector<Technique>{
      {"clipped", "gpt_tiny_tied", {"--clip_grad_norm=0.1"}},
      {"fp16", "mlp_small", {"--dtype=fp16", "--optimizer=adamw"}},
      {"sharded", "mlp_dropout", {"--shard_optimizer=on", "--optimizer=adam"}},
      {"reproducible",
       "mlp_small",
       {"--reproducible", "--microbatch_size=2", "--optimizer=adamw"}}};
  return *techniques;
}

// Sums of two replicas have no order: the same numbers as on the CPU.
TEST(SimNcclTest, LayoutsTrainAsOverTheHostsMemory) {
  int cells = 0;
  for (const Technique& technique : Techniques()) {
    for (const Layout& layout : Layouts()) {
      // A pipeline is one replica, which shares its optimizer with none.
      if (technique.name == "sharded" && layout.name == "pipeline") continue;
      const std::string name = technique.name + ", " + layout.name;
      SCOPED_TRACE(name);
      const Flags job =
          TinyJob(technique.model, Joined(layout.flags, technique.flags));
      const Events expected = RunJobForEvents(job);
      const Events events = RunJobForEvents(Joined(job, OnNccl()));
      EXPECT_EQ(EventsOf(events, "step").size(), size_t{kTinySteps});
      const double worst = ExpectSameLosses(events, expected, 1e-6, name);
      EXPECT_EQ(Fingerprint(events), Fingerprint(expected));
      std::cout << name << ": losses differ by " << worst << std::endl;
      ++cells;
    }
  }
  std::cout << cells << " cells of techniques and layouts on sim_nccl\n";
  EXPECT_EQ(cells, 15);
}

// Some seconds; the tenth step comes soon.
Flags StoppedJob(const Layout& layout, const Flags& more) {
  return Joined(SmallJob({"--epochs=20", "--batch_size=12", "--reproducible",
                          "--microbatch_size=3"}),
                Joined(Joined(layout.flags, {"--microbatch_size=3"}),
                       Joined(OnNccl(), more)));
}

class StoppedOnSimNcclTest : public testing::TestWithParam<Layout> {};

TEST_P(StoppedOnSimNcclTest, CtrlCAndResumeEndWithTheSameBits) {
  const std::string folder = NewFolder("stop");
  const Events straight = RunJobForEvents(StoppedJob(GetParam(), {}));
  Program program(kTrain, StoppedJob(GetParam(), {"--save_dir=" + folder}));
  ASSERT_TRUE(program.WaitForOutput("step  10/160")) << program.Wait().err;
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
  EXPECT_TRUE(program.LivingProcesses().empty());
  const Events resumed =
      RunJobForEvents(StoppedJob(GetParam(), {"--resume=" + folder}));
  EXPECT_LT(EventsOf(resumed, "step").size(),
            EventsOf(straight, "step").size());
  EXPECT_EQ(Fingerprint(resumed), Fingerprint(straight));
}

TEST_P(StoppedOnSimNcclTest, AKilledRankEndsTheOthersAndIsNamed) {
  Program program(kTrain, StoppedJob(GetParam(), {"--epochs=1000000"}));
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
                         testing::ValuesIn(Layouts()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
