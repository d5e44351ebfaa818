#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "core/base/environment.h"
#include "tools/bench/process/program.h"

namespace tandem::python_test {
namespace {

using testing::HasSubstr;

TEST(FindPython, SaysWhatToDoWithoutOne) {
  const absl::Status status =
      FindPython("/no/such/python", Environment::OfProcess()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/python"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("torch==" TORCH_VERSION));
}

TEST(FindPython, RefusesAnotherVersionOfTorch) {
  const std::string fake = testing::TempDir() + "/python";
  FILE* const file = std::fopen(fake.c_str(), "w");
  std::fputs("#!/bin/sh\necho 1.13.1\n", file);
  std::fclose(file);
  std::filesystem::permissions(fake, std::filesystem::perms::owner_all);
  const absl::Status status =
      FindPython(fake, Environment::OfProcess()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("has torch 1.13.1"));
}

}  // namespace
}  // namespace tandem::python_test
