// A launcher whose job goes on with fewer ranks, with real processes:
// tests/core/launch/probe.cc.

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Probe(std::vector<std::string> flags) {
  flags.insert(flags.begin(), std::getenv("PROBE"));
  return flags;
}

// How often `text` stands in it.
int Count(const std::string& all, const std::string& text) {
  return static_cast<int>(
             std::vector<std::string>(absl::StrSplit(all, text)).size()) -
         1;
}

TEST(ElasticTest, GoesOnWithoutARankThatDiesAgainAndAgain) {
  RunningProgram job(Probe({"--nproc_per_node=3", "--min_ranks=1",
                            "--max_restarts=5", "--behaviour=2:exit:7"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  // A rank that is stopped before it has said who it is, has not.
  EXPECT_EQ(Count(job.out(), "\"restart_count\":2"), 2) << job.out();
  EXPECT_EQ(Count(job.out(), "\"world_size\":2"), 2) << job.out();
  EXPECT_EQ(Count(job.out(), "\"local_world_size\":2"), 2) << job.out();
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("tandem: an elastic job, which can run on 1, 2 or 3"),
            HasSubstr("tandem: goes on with 2 ranks instead of 3: rank 2 was "
                      "the first to die in two attempts in a row"),
            HasSubstr("restart 2 of 5"), Not(HasSubstr("restart 3"))));
}

TEST(ElasticTest, WhatCannotBeStartedIsLeftOut) {
  int went_on = 0;
  for (int files = 8; files < 60 && went_on == 0; ++files) {
    RunningProgram job(
        Probe({"--nproc_per_node=7", "--min_ranks=2", "--max_restarts=1",
               absl::StrCat("--open_files=", files)}));
    const int code = job.Wait();
    const std::string why = "ranks instead of 7: no more than ";
    if (code == 0 && Count(job.err(), why) == 1) ++went_on;
  }
  EXPECT_EQ(went_on, 1);
}

TEST(ElasticTest, NotUnderTheLeastAndTheHistorySaysSo) {
  RunningProgram job(Probe({"--nproc_per_node=3", "--min_ranks=2",
                            "--max_restarts=4", "--behaviour=1:exit:7"}));
  EXPECT_EQ(job.Wait(), 7);
  EXPECT_THAT(
      job.err(),
      AllOf(HasSubstr("gives up after 4 restarts"),
            HasSubstr("    attempt 2 of 5, after "),
            HasSubstr("for a reason; goes on with 2 ranks instead of "
                      "3: rank 1 was the first to die"),
            HasSubstr("    attempt 4 of 5, after "),
            HasSubstr("for a reason; rank 1 was the first to die in two "
                      "attempts in a row, without a checkpoint in "
                      "between, but the job cannot run on fewer than 2 "
                      "(it can on 2 or 3)")));
}

TEST(ElasticTest, WhatDivergesTwiceGoesOnWithFewerRanksWhereItMay) {
  RunningProgram job(
      Probe({"--nproc_per_node=2", "--min_ranks=1", "--max_restarts=5",
             "--behaviour=1:diverge:3,0:sleep"}));
  ASSERT_TRUE(job.AwaitError("goes on with 1 rank instead of 2"));
  job.process().Signal(SIGTERM);
  job.Wait();
  EXPECT_THAT(job.err(), Not(HasSubstr("ended twice in the same way")));
}

TEST(ElasticTest, StartsAsManyAsAreAllowed) {
  RunningProgram job(Probe({"--nproc_per_node=3", "--min_ranks=1",
                            "--max_ranks=2", "--max_restarts=1"}));
  EXPECT_EQ(job.Wait(), 0) << job.err();
  EXPECT_EQ(Count(job.out(), "\"world_size\":2"), 2) << job.out();
}

TEST(ElasticTest, WhatDoesNotGoTogetherIsRefused) {
  struct Refusal {
    std::vector<std::string> flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"--nproc_per_node=2", "--min_ranks=1"}, "needs --max_restarts"},
           {{"--min_ranks=1"}, "needs --max_restarts"},
           {{"--rank=0", "--world_size=2", "--min_ranks=1",
             "--dist_url=tcp://127.0.0.1:1"},
            "needs --max_restarts"},
           {{"--nproc_per_node=2", "--max_ranks=1"}, "without --min_ranks"},
           {{"--nproc_per_node=2", "--min_ranks=3", "--max_restarts=1"},
            "--min_ranks=3 is too many"},
           {{"--nproc_per_node=2", "--min_ranks=0", "--max_restarts=1"},
            "must be at least 1"}}) {
    RunningProgram job(Probe(refusal.flags));
    EXPECT_EQ(job.Wait(), 2);
    EXPECT_THAT(job.err(), HasSubstr(refusal.message));
    EXPECT_EQ(Count(job.err(), "\n"), 1) << job.err();
  }
}

}  // namespace
}  // namespace tandem
