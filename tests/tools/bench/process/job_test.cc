// Jobs that a benchmark starts, and its Python.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/environment.h"
#include "core/testing/statuses.h"
#include "tools/bench/process/program.h"

namespace tandem::job_test {
namespace {

using std::chrono::seconds;

absl::StatusOr<JobEnd> Shell(const std::string& script, seconds timeout) {
  Environment environment = Environment::OfProcess();
  environment.Set("TANDEM_SAID", "twice");
  return RunJob({"/bin/sh", "-c", script}, environment, timeout);
}

TEST(RunJobTest, GivesWhatBothStreamsHad) {
  const auto end =
      Shell("echo one; echo $TANDEM_SAID >&2; printf two", seconds(60));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->out, "one\ntwo\n");
  EXPECT_EQ(end->err, "twice\n");
  EXPECT_GT(end->seconds, 0);
}

TEST(RunJobTest, SaysWhenAMarkCame) {
  const Environment environment = Environment::OfProcess();
  const std::vector<std::string> command = {
      "/bin/sh", "-c", "echo before; echo step 1/3; sleep 0.3; echo step 2/3"};
  const auto end = RunJob(command, environment, seconds(60), "step 1/");
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_GT(end->seconds_to_mark, 0);
  EXPECT_LT(end->seconds_to_mark, end->seconds - 0.2);
  EXPECT_EQ(RunJob(command, environment, seconds(60), "4/")->seconds_to_mark,
            0);
}

TEST(RunJobTest, AnotherCodeIsAnErrorWithItsMessages) {
  const absl::Status status =
      Shell("echo no such model >&2; exit 3", seconds(60)).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                               "exit code 3: no such model"));
}

TEST(RunJobTest, WhatDoesNotEndIsKilled) {
  const absl::Status status =
      Shell("echo waiting >&2; exec sleep 1000", seconds(2)).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                               "no end within 2000 ms: waiting"));
}

TEST(FindPython, SaysWhatToDoWithoutOne) {
  const absl::Status status =
      FindPython("/no/such/python", Environment::OfProcess()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, "/no/such/python",
                               "torch==" TORCH_VERSION));
}

TEST(FindPython, RefusesAnotherVersionOfTorch) {
  const std::string fake = testing::TempDir() + "/python";
  FILE* const file = std::fopen(fake.c_str(), "w");
  std::fputs("#!/bin/sh\necho 1.13.1\n", file);
  std::fclose(file);
  std::filesystem::permissions(fake, std::filesystem::perms::owner_all);
  const absl::Status status =
      FindPython(fake, Environment::OfProcess()).status();
  EXPECT_THAT(status, Says("has torch 1.13.1"));
}

}  // namespace
}  // namespace tandem::job_test
