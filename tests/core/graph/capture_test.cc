// What is captured at once, and what is left of a capture that fails.

#include "core/graph/capture.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "core/graph/side_stream.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::capture_test {
namespace {

using ::testing::HasSubstr;

class CaptureTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }
};

TEST_F(CaptureTest, WhatWorkGivesRunsWithEachReplay) {
  const SideStream side(SimDevice(0));
  at::Tensor x = at::zeros({8}, at::device(SimDevice(0)));
  x.add_(1);
  {
    const SideStream::Scope scope(side);
    const auto graph = CaptureGraph(SimDevice(0), [&] {
      x.add_(1);
      return absl::OkStatus();
    });
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*graph)->Replay().ok());
  }
  EXPECT_EQ(x[0].item<float>(), 4);
}

TEST_F(CaptureTest, AnErrorLeavesNothing) {
  const SideStream side(SimDevice(0));
  at::Tensor x = at::zeros({8}, at::device(SimDevice(0)));
  x.add_(1);
  {
    const SideStream::Scope scope(side);
    const auto failed = CaptureGraph(SimDevice(0), [&] {
      x.add_(1);
      return absl::InvalidArgumentError("the work has failed");
    });
    EXPECT_THAT(failed.status().message(), HasSubstr("the work has failed"));
    x.add_(2);
  }
  EXPECT_EQ(x[0].item<float>(), 3);
}

TEST_F(CaptureTest, TheDefaultStreamCannotBeCaptured) {
  EXPECT_FALSE(
      CaptureGraph(SimDevice(0), [] { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace tandem::capture_test
