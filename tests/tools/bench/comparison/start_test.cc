#include "tools/bench/comparison/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::start_test {
namespace {

TEST(ComparisonOptions, AreCheckedByTheFlagsNames) {
  ComparisonOptions options;
  EXPECT_TRUE(CheckOptions(options).ok());
  options.steps = -1;
  EXPECT_EQ(CheckOptions(options),
            absl::InvalidArgumentError("--steps=-1: expected at least 0"));
  options.rounds = 0;
  EXPECT_EQ(CheckOptions(options),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
  options.threads = 0;
  EXPECT_EQ(CheckOptions(options),
            absl::InvalidArgumentError("--threads=0: expected at least 1"));
}

TEST(ComparisonOptions, TakeTheCasesStepsUnlessTheySayMore) {
  ComparisonOptions options;
  Workload workload;
  workload.steps = 8;
  EXPECT_EQ(options.StepsOf(workload), 8);
  options.steps = 3;
  EXPECT_EQ(options.StepsOf(workload), 3);
}

TEST(InOwnFolder, IsOneForEachName) {
  ComparisonOptions options;
  options.rounds = 3;
  options.folder = testing::TempDir();
  const auto own = InOwnFolder(options, "gpt/2x1");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->rounds, 3);
  EXPECT_EQ(own->folder, options.folder + "/gpt_2x1");
  options.folder = "/no/such";
  EXPECT_FALSE(InOwnFolder(options, "gpt").ok());
}

TEST(StartContender, SaysWhyThereIsNoPython) {
  ComparisonOptions options;
  options.python = absl::NotFoundError("no Python here");
  options.folder = testing::TempDir();
  for (const Program program : {Program::kPyTorch, Program::kOneProcess}) {
    const Contender contender =
        StartContender("eager", program, Case(), options);
    EXPECT_EQ(contender.name(), "eager");
    EXPECT_EQ(contender.status(), absl::NotFoundError("no Python here"));
  }
}

}  // namespace
}  // namespace tandem::start_test
