#include "tests/e2e/side_by_side.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ProgramResult RunExample(const std::string& filter,
                         ProgramOptions options = ProgramOptions()) {
  options.environment["TEST_TMPDIR"] = NewFolder("example");
  return RunProgram("tests/e2e/side_by_side_example",
                    {"--gtest_filter=" + filter}, options);
}

// Each would wait in vain if it had to end before the other begins.
TEST(SideBySide, TestsRunAtOnce) {
  const ProgramResult result = RunExample("Meeting.*");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("[       OK ] Meeting.One"));
  EXPECT_THAT(result.out, HasSubstr("[       OK ] Meeting.Two"));
  EXPECT_THAT(result.out, HasSubstr("2 tests, 0 failed"));
}

TEST(SideBySide, WhatAFailedTestWroteIsPrinted) {
  const ProgramResult result = RunExample("Numbers/*");
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("[       OK ] Numbers/Number.IsSmall/0"));
  EXPECT_THAT(result.out, HasSubstr("[  FAILED  ] Numbers/Number.IsSmall/2"));
  EXPECT_THAT(result.out, HasSubstr("said by a test"));
  EXPECT_THAT(result.out, HasSubstr("3 tests, 1 failed"));
}

TEST(SideBySide, AShardHasItsTests) {
  ProgramOptions second;
  second.environment = {{"GTEST_TOTAL_SHARDS", "2"},
                        {"GTEST_SHARD_INDEX", "1"}};
  const ProgramResult result = RunExample("Numbers/*", second);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("[       OK ] Numbers/Number.IsSmall/1"));
  EXPECT_THAT(result.out, HasSubstr("1 tests, 0 failed"));
}

TEST(SideBySide, ATestThatDiesHasFailed) {
  const ProgramResult result = RunExample("End.BySignal");
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("exit code 137"));
}

// GoogleTest's own runner would have taken this for success.
TEST(SideBySide, ATestThatEndsTheProgramHasFailed) {
  const ProgramResult result = RunExample("End.ByExit");
  EXPECT_EQ(result.exit_code, 1) << result.out;
}

TEST(SideBySide, NoTestsAreAFailure) {
  const ProgramResult result = RunExample("Nothing.*");
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("0 tests"));
}

}  // namespace
}  // namespace tandem
