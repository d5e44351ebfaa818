#include "tools/train_main.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::train_main_test {
namespace {

// The rest is tests/e2e/examples/documented_programs_test.cc's, and all of
// tests/e2e/train's.
TEST(TrainMainTest, WhatCouldNotBeRegisteredIsReportedAndNothingIsTrained) {
  std::string name = "my_train";
  char* argv[] = {name.data(), nullptr};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(TrainMain(1, argv, absl::AlreadyExistsError("cnn twice")), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("train: cnn twice\n"));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace tandem::train_main_test
