// Graphs of simulated devices, on a side stream; who has none says why.

#include "core/graph/make_device_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/device/capture_mark.h"
#include "core/device/device_moment.h"
#include "core/graph/side_stream.h"
#include "tests/core/sim/asynchronous.h"

namespace tandem::make_device_graph_test {
namespace {

using ::testing::HasSubstr;

class MakeDeviceGraphTest : public testing::Test {
 protected:
  void SetUp() override { EnableAsynchronousSim(); }
  void TearDown() override { sim::SynchroniseAll(); }
};

TEST_F(MakeDeviceGraphTest, ReplaysWhatWasCaptured) {
  const c10::Device device = SimDevice(0);
  const SideStream side(device);
  at::Tensor x = at::zeros({8}, at::device(device));
  x.add_(1);
  auto graph = MakeDeviceGraph(device);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int i = 0; i < 2; ++i) {
    const SideStream::Scope scope(side);
    EXPECT_EQ(sim::CurrentStream(0), side.stream());
    if (i == 0) {
      ASSERT_TRUE((*graph)->Begin().ok());
      EXPECT_TRUE(WorkIsCaptured(device));
      EXPECT_FALSE(WorkIsCaptured(SimDevice(1)));
      EXPECT_TRUE(DeviceMoment::Now(device).has_come());
      x.add_(1);
      ASSERT_TRUE((*graph)->End().ok());
      EXPECT_FALSE(WorkIsCaptured(device));
    }
    ASSERT_TRUE((*graph)->Replay().ok());
  }
  // Behind the side stream.
  EXPECT_EQ(x[0].item<float>(), 3);
}

TEST_F(MakeDeviceGraphTest, AnAbandonedCaptureLeavesNothing) {
  const c10::Device device = SimDevice(0);
  const SideStream side(device);
  at::Tensor x = at::zeros({8}, at::device(device));
  x.add_(1);
  auto graph = MakeDeviceGraph(device);
  ASSERT_TRUE(graph.ok()) << graph.status();
  {
    const SideStream::Scope scope(side);
    ASSERT_TRUE((*graph)->Begin().ok());
    x.add_(1);
    (*graph)->Abandon();
    EXPECT_FALSE(WorkIsCaptured(device));
    x.add_(1);
  }
  EXPECT_EQ(x[0].item<float>(), 2);
}

TEST_F(MakeDeviceGraphTest, TheDefaultStreamIsRefused) {
  auto graph = MakeDeviceGraph(SimDevice(0));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT((*graph)->Begin().message(), HasSubstr("default stream"));
}

TEST_F(MakeDeviceGraphTest, OthersSayWhyTheyHaveNone) {
  EXPECT_THAT(CheckHasGraphs(c10::kCPU).message(),
              HasSubstr("cpu has no graphs, which are for GPUs"));
  EXPECT_FALSE(MakeDeviceGraph(c10::kCPU).ok());
  EXPECT_TRUE(CheckHasGraphs(SimDevice(0)).ok());
}

}  // namespace
}  // namespace tandem::make_device_graph_test
