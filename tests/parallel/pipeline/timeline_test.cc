#include "parallel/pipeline/timeline.h"

#include <gtest/gtest.h>

#include "tests/core/sim/asynchronous.h"

namespace tandem::timeline_test {
namespace {

ActionMoments MomentsOf(int microbatch, c10::Device device) {
  const auto now = [&] { return DeviceMoment::Now(device); };
  ActionMoments moments;
  moments.action = {ActionKind::kForward, 0, microbatch};
  moments.came = now();
  moments.started = now();
  moments.computed = now();
  moments.ended = now();
  return moments;
}

TEST(TimelineTest, HasEachMomentsTime) {
  EXPECT_TRUE(AwaitTimes({}).empty());
  EXPECT_TRUE(HaveCome({}));
  const PipelineMoments moments = {
      {}, {MomentsOf(0, c10::kCPU), MomentsOf(1, c10::kCPU)}};
  EXPECT_TRUE(HaveCome(moments));
  const PipelineTimeline times = AwaitTimes(moments);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_TRUE(times[0].empty());
  ASSERT_EQ(times[1].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const ActionTime& time = times[1][i];
    EXPECT_EQ(time.action, moments[1][i].action);
    EXPECT_EQ(time.came, moments[1][i].came.time());
    EXPECT_EQ(time.started, moments[1][i].started.time());
    EXPECT_EQ(time.computed, moments[1][i].computed.time());
    EXPECT_EQ(time.ended, moments[1][i].ended.time());
  }
}

TEST(TimelineTest, HasNotComeBeforeItsDeviceHas) {
  EnableAsynchronousSim();
  DeviceMoment::Now(SimDevice(0));
  PipelineMoments moments(1);
  {
    const HeldStream held(sim::DefaultStream(0));
    moments[0].push_back(MomentsOf(0, SimDevice(0)));
    EXPECT_FALSE(HaveCome(moments));
  }
  const PipelineTimeline times = AwaitTimes(moments);  // waits
  EXPECT_TRUE(HaveCome(moments));
  EXPECT_LE(times[0][0].came, times[0][0].ended);
}

}  // namespace
}  // namespace tandem::timeline_test
