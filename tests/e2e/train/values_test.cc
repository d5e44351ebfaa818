// Values that are not finite, and replicas that have drifted: named, skipped,
// or gone back from.

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::values_test {
namespace {

using ::testing::HasSubstr;

const std::vector<std::pair<std::string, std::string>>& Layouts() {
  static const auto* const layouts =
      new std::vector<std::pair<std::string, std::string>>{
          {"Single", ""},
          {"Ddp", "--nproc_per_node=2"},
          {"Devices",
           "--devices_per_rank=2 --strategy=pipeline --microbatch_size=4"},
          {"Pipeline", "--nproc_per_node=2 --pipe=2 --microbatch_size=4"},
          {"Hybrid", "--nproc_per_node=4 --pipe=2 --microbatch_size=4"}};
  return *layouts;
}

bool HasReplicas(const std::string& layout) {
  return layout == "Ddp" || layout == "Hybrid";
}

// The first step's update is finite and huge: what it makes of the second one's
// inputs is not.
std::vector<RefusalRow> NonfiniteRows() {
  std::vector<RefusalRow> rows;
  for (const auto& [name, flags] : Layouts()) {
    rows.push_back({name, "--learning_rate=1e30 --check_finite " + flags,
                    "layer |its input is |its parameters are finite", 1});
  }
  return rows;
}

class NonfiniteTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(NonfiniteTest, TheFirstLayerIsNamed) {
  ExpectRefused(SmallJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, NonfiniteTest, testing::ValuesIn(NonfiniteRows()),
                         RowName<RefusalRow>);

void SkipsFiveSteps(const JobRun& run, const JobRun& one_step) {
  EXPECT_EQ(EventsOf(run.events, "skipped_step").size(), 5u);
  SameBits(run, one_step);
}

std::vector<SameRow> Rows() {
  std::vector<SameRow> rows;
  for (const auto& [name, flags] : Layouts()) {
    rows.push_back({"StepsAreSkippedOnAllRanksAlike" + name,
                    Small("--learning_rate=1e30 " + flags),
                    {"--skip_nonfinite"},
                    SkipsFiveSteps,
                    {""},
                    "--max_steps=1"});
    rows.push_back({"FiniteStepsHaveTheSameBits" + name,
                    Small(flags),
                    {"--skip_nonfinite", "--check_finite"}});
    if (HasReplicas(name)) {
      rows.back().others.push_back("--check_replicas_every=1");
    }
  }
  return rows;
}

class ValuesTest : public testing::TestWithParam<SameRow> {};

TEST_P(ValuesTest, ChangeNoOtherStep) { ExpectSame(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, ValuesTest, testing::ValuesIn(Rows()),
                         RowName<SameRow>);

TEST(ValuesTableTest, NoCellIsMissing) {
  EXPECT_EQ(NonfiniteRows().size(), 5u);
  EXPECT_EQ(CellsIn(Rows()), 5 * 3 + 2);
}

ProgramOptions CorruptedIn(int step, int rank) {
  return FaultOf("point=parameters,action=fail,step=" + std::to_string(step) +
                 ",rank=" + std::to_string(rank));
}

TEST(DriftTest, TheReplicaThatDriftedIsNamed) {
  const ProgramResult result =
      RunProgram(kTrain,
                 Small("--nproc_per_node=3 --batch_size=15 "
                       "--check_replicas_every=2"),
                 CorruptedIn(3, 1));
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("replicas differ after step 4: rank 1 has "
                                    "drifted from ranks 0, 2, which are "
                                    "alike ("));
}

// What is each replica's own is no drift.
TEST(DriftTest, ParametersThatAreEachReplicasOwnAreNotCompared) {
  const ProgramResult result =
      RunProgram(kTrain, Small("--nproc_per_node=2 --check_replicas_every=1 "
                               "--parameters_to_ignore=fc1.weight,fc2.bias"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Owners would make replicas alike before anybody looks.
TEST(DriftTest, TheOptimizerIsNotSharedWhereReplicasAreCompared) {
  const Events events = RunJobForEvents(
      Small("--nproc_per_node=2 --model=mlp_wide --optimizer=adamw "
            "--max_steps=1 --check_replicas_every=1"));
  const std::string state =
      EventsOf(events, "settings").front()["optimizer_state"];
  EXPECT_THAT(state, HasSubstr("whole on each replica (comparing replicas"));
}

// The checkpoint of step 2 is before it; the one of step 4 is not written.
TEST(DriftTest, ARestartGoesBackToBeforeIt) {
  const Flags job = Small("--nproc_per_node=2");
  ProgramResult program;
  const Events events =
      RunJobForEvents(Joined(job,
                             Words("--check_replicas_every=100 --save_every=2 "
                                   "--max_restarts=1 --restart_delay=0"),
                             {"--save_dir=" + NewFolder("drift")}),
                      &program, CorruptedIn(3, 0));
  EXPECT_THAT(program.err, HasSubstr("replicas differ after step 4: ranks 0, "
                                     "1 have different parameters"));
  EXPECT_THAT(program.out, HasSubstr("at step 2"));
  EXPECT_EQ(Fingerprint(events), Fingerprint(RunJobForEvents(job)));
}

}  // namespace
}  // namespace tandem::values_test
