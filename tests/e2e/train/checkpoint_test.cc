// Checkpoints of whole jobs: killed in the middle of a save, written behind,
// skipped where they are damaged, removed where they are old.

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::checkpoint_test {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Six steps on two ranks, each of which writes a part.
Flags Job(const std::string& folder, const Flags& more = {}) {
  return Joined(Small("--nproc_per_node=2 --pipe=2 --optimizer=adam "
                      "--microbatches=2 --save_dir=" +
                      folder),
                more);
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
  const ProgramOptions killed =
      FaultOf(std::string("point=") + point + ",rank=" + std::to_string(rank) +
              ",action=kill");
  EXPECT_NE(RunProgram(kTrain, job, killed).exit_code, 0);
  ProgramResult program;
  const Events events = RunJobForEvents(job, &program);
  const std::string newest = "/step-00000000" + std::to_string(step);
  EXPECT_THAT(program.out, HasSubstr("resumed " + folder + newest + " at"));
  // Rank 0 tidies up where another one is killed.
  if (step == 2 && rank == 0) {
    EXPECT_THAT(program.out, ContainsRegex("step-000000004[.]tmp[.]......, a "
                                           "save that was never finished"));
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

// The same command starts a job and goes on with it; one that names a
// checkpoint is another's.
TEST(ResumeAutoTest, AStepThatWasDoneBeforeIsNotTraced) {
  const std::string folder = NewFolder("traced");
  const std::string trace = NewFolder("trace") + "/t.json";
  const Flags traced = {"--trace_steps=2", "--trace_file=" + trace};
  const Flags job = Job(folder, Joined({"--resume=auto"}, traced));
  RunJobForEvents(Joined(job, {"--max_steps=3"}));
  ASSERT_TRUE(fs::remove(trace));
  ProgramResult program;
  EXPECT_EQ(Fingerprint(RunJobForEvents(job, &program)), Straight());
  EXPECT_THAT(program.out,
              HasSubstr("no trace: step 2 (--trace_steps) was done "
                        "before\n"));
  EXPECT_FALSE(fs::exists(trace));
  ExpectRefused(Job("", traced), {"Traced", "--resume=" + SavedStep(folder, 3),
                                  "would never be written: step 2"});
}

// A copy that is not done, a folder made by hand, a newest one that is damaged:
// the one before, whoever names the folder.
TEST(ResumeTest, TakesTheNewestThatCanBeUsed) {
  const std::string folder = NewFolder("usable");
  RunJobForEvents(Job(folder, {"--save_every=2"}));
  fs::remove(folder + "/step-000000006/manifest.json");
  fs::create_directories(folder + "/step-999999999");
  fs::create_symlink("nowhere", folder + "/step-888888888");
  std::ofstream(folder + "/step-000000004/manifest.json") << "{}";
  for (const std::string& resume : {folder, std::string("auto")}) {
    ProgramResult program;
    const Events events = RunJobForEvents(
        Job(resume == "auto" ? folder : "", {"--resume=" + resume}), &program);
    EXPECT_EQ(Fingerprint(events), Straight());
    EXPECT_THAT(program.out,
                AllOf(HasSubstr("step-000000006: it has no manifest.json"),
                      HasSubstr("step-000000004/manifest.json is no usable"),
                      HasSubstr("resumed " + folder + "/step-000000002 at"),
                      Not(HasSubstr("step-999999999"))));
  }
  // Beside what is damaged.
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000002", "step-000000004",
                                           "step-000000006", "step-000000006.1",
                                           "step-888888888", "step-999999999"));
}

TEST(ResumeTest, WhereNoneCanBeUsedNothingBeginsAnew) {
  const std::string folder = NewFolder("unusable");
  RunJobForEvents(Job(folder, {"--save_every=1"}));
  for (int step = 1; step <= 6; ++step) {
    const std::string manifest =
        folder + "/step-00000000" + std::to_string(step) + "/manifest.json";
    if (step % 2 == 0) {
      fs::resize_file(manifest, 100);
    } else {
      fs::remove(manifest);
    }
  }
  for (const std::string& resume : {std::string("auto"), folder}) {
    const ProgramResult refused =
        RunProgram(kTrain, Job(folder, {"--resume=" + resume}));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("none of the checkpoints in " + folder +
                                " can be used: "),
                      HasSubstr("step-000000005: it has no manifest.json"),
                      HasSubstr("step-000000006/manifest.json is no usable")));
  }
  EXPECT_EQ(NamesIn(folder).size(), 6u);
}

TEST(OtherJobTest, CheckpointsOfTwoJobsAreNotMixed) {
  const std::string folder = NewFolder("two_jobs");
  RunJobForEvents(Job(folder, {"--save_every=3"}));
  // Anew: it would save steps 1 and 2, and --keep_last would remove them.
  ExpectRefused(Job(folder),
                {"Anew", "--max_steps=2",
                 "has checkpoints of another job, up to " +
                     SavedStep(folder, 6) + "|Give --resume=auto"});
  // From another job's checkpoint, elsewhere.
  const std::string elsewhere = NewFolder("elsewhere");
  RunJobForEvents(Job(elsewhere, {"--max_steps=2"}));
  ExpectRefused(Job(folder), {"Other", "--max_steps=4 --resume=" + elsewhere,
                              "has checkpoints of another job"});
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000003", "step-000000006"));
  // From its own, an earlier one.
  ProgramResult program;
  const Events events = RunJobForEvents(
      Job(folder, {"--resume=" + folder + "/step-000000003"}), &program);
  EXPECT_THAT(program.out, HasSubstr("has later checkpoints of this job"));
  EXPECT_EQ(Fingerprint(events), Straight());
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000003", "step-000000006",
                                           "step-000000006.1"));
}

TEST(DivergedTest, NoCheckpointIsWrittenOfWeightsThatAreNotFinite) {
  const std::string folder = NewFolder("diverged");
  RunJobForEvents(Job(folder, {"--max_steps=2"}));
  // The update of step 3 overflows, which its loss does not show yet.
  ExpectRefused(Job(folder),
                {"Diverged", "--resume=auto --max_steps=3 --learning_rate=1e39",
                 "after step 3 |training has diverged, and no checkpoint is "
                 "written of it",
                 1});
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000002"));
}

// Servers have the parameters, by halves. Whoever sees it first ends the job.
TEST(DivergedTest, NoneIsWrittenByParameterServersEither) {
  const std::string folder = NewFolder("diverged_served");
  ExpectRefused(SmallJob(),
                {"Served",
                 "--nproc_per_node=4 --strategy=parameter_server --servers=2 "
                 "--optimizer=adamw --max_steps=1 --learning_rate=1e40 "
                 "--noasync_save --save_dir=" +
                     folder,
                 "training has diverged", 1});
  EXPECT_THAT(NamesIn(folder), ElementsAre());
}

TEST(DivergedTest, AnEvaluationSaysSo) {
  ExpectRefused(Job(""),
                {"Evaluated", "--max_steps=1 --learning_rate=1e39",
                 "the loss of the test set is |training has diverged", 1});
}

// Outputs are too large for a loss of them: more training, on other samples,
// may be none the worse for it.
TEST(DivergedTest, AnEvaluationOfFiniteWeightsEndsNoTraining) {
  const std::string folder = NewFolder("large");
  const Flags job = Job(folder, {"--max_steps=1", "--learning_rate=1e30"});
  const ProgramResult trained = RunProgram(kTrain, job);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out + trained.err,
              HasSubstr(", though all weights are finite"));
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000001"));
  ExpectRefused(job, {"Evaluated", "--resume=auto --eval_only",
                      "the loss of the test set is ", 1});
}

TEST(MetricsTest, AJobThatGoesOnKeepsWhatIsThereAndANewOneMovesItAway) {
  const std::string folder = NewFolder("metrics");
  const std::string file = folder + "/m.jsonl";
  const std::string saved = folder + "/saved";
  const Flags job = Job(saved, {"--metrics_file=" + file, "--log_every=1"});
  const auto run = [&](const Flags& more) {
    const ProgramResult result = RunProgram(kTrain, Joined(job, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  run({"--max_steps=2"});
  run({"--resume=auto"});
  const Events events = ReadEvents(file);
  EXPECT_THAT(StepsOf(events), ElementsAre(1, 2, 3, 4, 5, 6));
  const Events starts = EventsOf(events, "start");
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0]["job"], starts[1]["job"]);
  EXPECT_EQ(starts[1]["step"], 2);
  EXPECT_EQ(starts[1]["checkpoint"], saved + "/step-000000002");
  // A resume that is refused costs nothing either.
  ExpectRefused(job, {"Seed", "--resume=auto --seed=7", "--seed=7"});
  EXPECT_THAT(StepsOf(ReadEvents(file)), ElementsAre(1, 2, 3, 4, 5, 6));
  // Nor does a new job's refusal, which may come late: weights are found not to
  // fit when they are loaded, a step not to come when the last one is known.
  for (const Flags& late :
       {Flags{"--model=mlp_wide", "--init_from=" + saved + "/step-000000006"},
        Flags{"--trace_steps=50", "--trace_file=" + folder + "/t.json"}}) {
    const ProgramResult result =
        RunProgram(kTrain, Joined(Joined(job, {"--save_dir="}), late));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(late.back())) << result.out;
    EXPECT_THAT(StepsOf(ReadEvents(file)), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_FALSE(fs::exists(file + ".1"));
  }
  run({"--max_steps=1", "--save_dir="});
  EXPECT_THAT(StepsOf(ReadEvents(file)), ElementsAre(1));
  EXPECT_THAT(StepsOf(ReadEvents(file + ".1")), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_NE(EventsOf(ReadEvents(file), "start")[0]["job"], starts[0]["job"]);
}

// With --resume=auto it is a job of its own as well, until it has saved one.
TEST(MetricsTest, AJobThatFindsNothingToGoOnFromMovesAnothersAway) {
  const std::string folder = NewFolder("metrics_auto");
  const std::string file = folder + "/m.jsonl";
  const auto run = [&](const std::string& save_dir, const Flags& more) {
    const ProgramResult result = RunProgram(
        kTrain, Job(save_dir, Joined({"--metrics_file=" + file}, more)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  run("", {"--max_steps=2"});
  for (const char* steps : {"--max_steps=1", "--max_steps=3"}) {
    run(folder + "/saved", {"--resume=auto", steps});
  }
  EXPECT_THAT(StepsOf(ReadEvents(file)), ElementsAre(1, 2, 3));
  EXPECT_THAT(StepsOf(ReadEvents(file + ".1")), ElementsAre(1, 2));
  EXPECT_FALSE(fs::exists(file + ".2"));
}

// The job has three, of six steps each.
TEST(RetentionTest, NotEveryEpochNeedsACheckpoint) {
  const auto saved = [](const std::string& every) {
    const std::string folder = NewFolder("epochs");
    RunJobForEvents(
        Job(folder, {"--epochs=3", "--save_every_epochs=" + every}));
    return NamesIn(folder);
  };
  EXPECT_THAT(saved("1"), ElementsAre("step-000000006", "step-000000012",
                                      "step-000000018"));
  EXPECT_THAT(saved("2"), ElementsAre("step-000000012", "step-000000018"));
  EXPECT_THAT(saved("0"), ElementsAre("step-000000018"));
}

TEST(RetentionTest, AnOldOneThatCannotBeRemovedEndsNoJob) {
  const std::string folder = NewFolder("stays");
  const ProgramResult done =
      RunProgram(kTrain, Job(folder, {"--save_every=3", "--keep_last=1"}),
                 FaultOf("point=remove_old,action=fail"));
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("an old checkpoint stays: "));
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000003", "step-000000006"));
}

TEST(RetentionTest, TheLastAndEveryKthStay) {
  const std::string folder = NewFolder("kept");
  RunJobForEvents(
      Job(folder, {"--save_every=1", "--keep_last=2", "--keep_every=3"}));
  EXPECT_THAT(NamesIn(folder), ElementsAre("step-000000003", "step-000000005",
                                           "step-000000006"));
}

}  // namespace
}  // namespace tandem::checkpoint_test
