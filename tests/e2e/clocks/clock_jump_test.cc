// Jobs whose processes have their wall clocks set by hours while they run, each
// otherwise: they end with the bits of one whose clocks are the host's, and go
// on from their newest checkpoint.

#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/clocks/job_clocks.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Forwards and back, and further back with each turn.
const std::vector<int> kBothWays = {1, -2};

struct Layout {
  std::string name;
  Flags flags;
};

class ClockJumpTest : public testing::TestWithParam<Layout> {};

// In the middle of an epoch of 48 steps.
Flags JobOf(const Flags& layout, int steps) {
  return Joined(SmallJob(layout), {"--synthetic_samples=768",
                                   "--max_steps=" + std::to_string(steps)});
}

Flags SavedJob(const Flags& layout, int steps, const std::string& folder) {
  return Joined(JobOf(layout, steps),
                {"--save_every=9", "--async_save", "--save_dir=" + folder,
                 "--resume=auto"});
}

TEST_P(ClockJumpTest, ChangesNoBitAndNoCheckpoint) {
  const Flags& layout = GetParam().flags;
  const std::string expected = Fingerprint(RunJobForEvents(JobOf(layout, 30)));
  JobClocks clocks;
  clocks.Start(kBothWays);
  // Its steps take long enough for many jumps.
  const ProgramOptions options =
      clocks.Options(FaultOf("point=before_optimizer,action=delay:0.05"));
  const std::string folder = NewFolder("clocks");
  RunJobForEvents(SavedJob(layout, 24, folder), nullptr, options);
  for (const int rank : {0, 1}) {
    EXPECT_GE(clocks.JumpsSeen(rank), 5) << "rank " << rank;
    std::cout << "rank " << rank << " saw " << clocks.JumpsSeen(rank)
              << " jumps\n";
  }
  int complete = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const ProgramResult shown = RunProgram(kInspect, {entry.path()});
    EXPECT_THAT(shown.out, HasSubstr("checksums hold")) << entry.path();
    ++complete;
  }
  std::cout << complete << " checkpoints\n";
  EXPECT_EQ(complete, 3);  // of steps 9, 18 and 24
  // The newest is that of the last step, whatever its file's time says.
  fs::last_write_time(folder + "/step-000000024",
                      fs::file_time_type::clock::now() - std::chrono::hours(9));
  const Events rest =
      RunJobForEvents(SavedJob(layout, 30, folder), nullptr, options);
  EXPECT_THAT(StepsOf(rest), ElementsAre(25, 26, 27, 28, 29, 30));
  EXPECT_EQ(Fingerprint(rest), expected);
}

INSTANTIATE_TEST_SUITE_P(
    All, ClockJumpTest,
    testing::Values(
        Layout{"Ddp", {"--nproc_per_node=2", "--backend=shm"}},
        Layout{"DdpOverGloo", {"--nproc_per_node=2", "--backend=gloo"}},
        Layout{"Pipeline",
               {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=4",
                "--schedule=zb_h1"}},
        Layout{"PipelineOnSimNccl",
               {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=4",
                "--device=sim", "--backend=sim_nccl"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
