// The program as a user runs it.

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace {

struct Outcome {
  int exit_code;
  std::string output;  // standard output and error
};

Outcome RunInspect(const std::string& arguments) {
  const std::string command = "tools/inspect " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    output.append(buffer, n);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

const char kFile[] = "tests/core/checkpoint/data/python.safetensors";

TEST(Inspect, PrintsAFileOfAnotherTool) {
  const Outcome table = RunInspect(kFile);
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_TRUE(absl::StrContains(table.output, "12 tensors, 198 bytes"))
      << table.output;
  const Outcome json = RunInspect(std::string("--json ") + kFile);
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_TRUE(absl::StartsWith(json.output, "{\"file\":")) << json.output;
}

TEST(Inspect, PathsAreFromWhereTheUserStands) {
  setenv("BUILD_WORKING_DIRECTORY", "/nowhere", 1);
  const Outcome outcome = RunInspect("here");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(absl::StrContains(outcome.output, "/nowhere/here"))
      << outcome.output;
}

TEST(Inspect, WhatWasGivenWronglyIsALineAndExitCodeTwo) {
  const Outcome bad = RunInspect("tests/tools/BUILD");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(absl::StartsWith(bad.output, "inspect: tests/tools/BUILD"))
      << bad.output;
  for (const char* arguments : {"", "--what", "a b"}) {
    const Outcome outcome = RunInspect(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_TRUE(absl::StrContains(outcome.output, "usage: ")) << arguments;
  }
  EXPECT_EQ(RunInspect("--help").exit_code, 0);
}

}  // namespace
