// Checkpoints of whole jobs: killed in the middle of a save, written behind,
// skipped where they are damaged, removed where they are old.

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Six steps on two ranks, each of which writes a part.
Flags Job(const std::string& folder, const Flags& more) {
  Flags flags = SmallJob({"--nproc_per_node=2", "--pipe=2", "--optimizer=adam",
                          "--microbatches=2", "--save_dir=" + folder});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string Straight() {
  static const auto* const fingerprint =
      new std::string(Fingerprint(RunJobForEvents(Job("", {}))));
  return *fingerprint;
}

// How it saves, at which point, on which rank it is killed, and the step of the
// checkpoint that is then the newest.
using Kill = std::tuple<const char*, const char*, int, int>;

class KilledSaveTest : public testing::TestWithParam<Kill> {};

// The checkpoint of step 2 is complete; the save of step 4 is killed.
TEST_P(KilledSaveTest, AutoGoesOnFromACompleteCheckpoint) {
  const auto& [how, point, rank, step] = GetParam();
  const std::string folder = NewFolder("killed");
  RunJobForEvents(Job(folder, {"--max_steps=2"}));
  const Flags job =
      Job(folder, {"--resume=auto", "--save_every=2", how, "--timeout=20"});
  ProgramOptions killed;
  killed.environment["TANDEM_FAULT"] = std::string("point=") + point +
                                       ",rank=" + std::to_string(rank) +
                                       ",action=kill";
  EXPECT_NE(RunProgram(kTrain, job, killed).exit_code, 0);
  ProgramResult program;
  const Events events = RunJobForEvents(job, &program);
  const std::string newest = "/step-00000000" + std::to_string(step);
  EXPECT_THAT(program.out, HasSubstr("resumed " + folder + newest + " at"));
  // Rank 0 tidies up where another one is killed.
  if (step == 2 && rank == 0) {
    EXPECT_THAT(program.out, HasSubstr("step-000000004.incomplete, a save that "
                                       "was never finished"));
  }
  EXPECT_EQ(Fingerprint(events), Straight());
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000002", "step-000000004",
                                           "step-000000006"));
}

constexpr char kSync[] = "--noasync_save";
constexpr char kAsync[] = "--async_save";

INSTANTIATE_TEST_SUITE_P(All, KilledSaveTest,
                         testing::Values(Kill{kSync, "write_tensor:1", 1, 2},
                                         Kill{kSync, "before_commit", 1, 2},
                                         Kill{kSync, "checkpoint_manifest", 0,
                                              2},
                                         Kill{kSync, "folder_rename", 0, 2},
                                         Kill{kSync, "folder_renamed", 0, 4},
                                         Kill{kAsync, "write_tensor:1", 1, 2},
                                         Kill{kAsync, "folder_rename", 0, 2}));

TEST(AsyncSaveTest, HasTheSameCheckpointsAndSaysHowLongTheLoopStood) {
  const std::string folder = NewFolder("async");
  ProgramResult program;
  const Events events = RunJobForEvents(
      Job(folder, {"--save_every=1", "--async_save"}), &program);
  EXPECT_EQ(Fingerprint(events), Straight());
  EXPECT_THAT(program.out, HasSubstr("the loop stood still for"));
  EXPECT_THAT(program.out, HasSubstr("saved " + folder +
                                     "/step-000000006; the loop waited"));
  EXPECT_EQ(EventsOf(events, "summary")[0]["saves"], 6);
  EXPECT_GT(EventsOf(events, "summary")[0]["save_stall_ms"], 0);
  EXPECT_EQ(NamesIn(folder).size(), 6u);
  for (const char* step : {"2", "5"}) {
    const Events rest = RunJobForEvents(
        Job("", {std::string("--resume=") + folder + "/step-00000000" + step}));
    EXPECT_EQ(Fingerprint(rest), Straight()) << step;
  }
}

TEST(ResumeAutoTest, BeginsAnewAndSkipsWhatIsDamaged) {
  const std::string folder = NewFolder("auto");
  const Flags job = Job(folder, {"--resume=auto", "--save_every=2"});
  ProgramResult program;
  EXPECT_EQ(Fingerprint(RunJobForEvents(job, &program)), Straight());
  EXPECT_THAT(program.out, HasSubstr("no checkpoint to go on from in"));
  fs::resize_file(folder + "/step-000000006/rank-00001.safetensors", 1000);
  std::ofstream(folder + "/step-000000004/manifest.json") << "{}";
  EXPECT_EQ(Fingerprint(RunJobForEvents(job, &program)), Straight());
  EXPECT_THAT(program.out,
              HasSubstr("step-000000006/rank-00001.safetensors is damaged: it "
                        "has 1000 bytes"));
  EXPECT_THAT(program.out, HasSubstr("step-000000004/manifest.json is no "
                                     "usable manifest"));
  EXPECT_THAT(program.out,
              HasSubstr("resumed " + folder + "/step-000000002 at step 2"));
}

TEST(RetentionTest, TheLastAndEveryKthStay) {
  const std::string folder = NewFolder("kept");
  RunJobForEvents(
      Job(folder, {"--save_every=1", "--keep_last=2", "--keep_every=3"}));
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000003", "step-000000005",
                                           "step-000000006"));
}

}  // namespace
}  // namespace tandem
