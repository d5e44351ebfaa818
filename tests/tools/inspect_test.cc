// The program as a user runs it.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem::inspect_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult RunInspect(const std::vector<std::string>& arguments,
                         const ProgramOptions& options = ProgramOptions()) {
  return RunProgram("tools/inspect", arguments, options);
}

const char kFile[] = "tests/core/checkpoint/data/python.safetensors";

TEST(Inspect, PrintsAFileOfAnotherTool) {
  const ProgramResult table = RunInspect({kFile});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("12 tensors, 198 bytes"));
  const ProgramResult json = RunInspect({"--json", kFile});
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_THAT(json.out, StartsWith("{\"file\":"));
}

TEST(Inspect, PathsAreFromWhereTheUserStands) {
  ProgramOptions nowhere;
  nowhere.environment["BUILD_WORKING_DIRECTORY"] = "/nowhere";
  const ProgramResult result = RunInspect({"here"}, nowhere);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("/nowhere/here"));
}

TEST(Inspect, WhatWasGivenWronglyIsALineAndExitCodeTwo) {
  const ProgramResult bad = RunInspect({"tests/tools/BUILD"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, StartsWith("inspect: tests/tools/BUILD"));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{}, {"--what"}, {"a", "b"}}) {
    const ProgramResult result = RunInspect(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out + result.err, HasSubstr("usage: "));
  }
  EXPECT_EQ(RunInspect({"--help"}).exit_code, 0);
}

}  // namespace
}  // namespace tandem::inspect_test
