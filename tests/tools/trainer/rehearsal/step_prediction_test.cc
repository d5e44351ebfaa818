#include <gtest/gtest.h>

#include <cstddef>

#include "parallel/schedule/schedules.h"
#include "tools/trainer/rehearsal/rehearsed_job.h"

namespace tandem::step_prediction_test {
namespace {

constexpr int kMicrobatches = 4;

// A step: 8 seconds forward, 16 backward, 3 behind both.
RehearsedDevice Device() {
  RehearsedDevice device;
  device.work.forward.seconds = 8;
  device.work.backward.seconds = 16;
  device.work.rest.seconds = 3;
  return device;
}

RehearsedJob JobOf(size_t devices) {
  RehearsedJob job;
  job.devices.assign(devices, Device());
  return job;
}

Schedule GPipeOf(int devices) {
  const auto schedule = GPipe({devices, /*chunks=*/1, kMicrobatches});
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *schedule;
}

Mesh MeshOf(int ranks, int pipe) { return *Mesh::Create(ranks, pipe); }

TEST(PredictStepTest, OneDeviceHasNoBubble) {
  RehearsedJob job = JobOf(1);
  ASSERT_TRUE(PredictStep(GPipeOf(1), MeshOf(1, 1), &job).ok());
  EXPECT_DOUBLE_EQ(job.step, 8 + 16 + 3);
  EXPECT_DOUBLE_EQ(job.bubble, 0);
  EXPECT_DOUBLE_EQ(job.waited, 0);
}

// A microbatch takes 2 seconds forward and 4 back: GPipe's bubble is one of
// each.
TEST(PredictStepTest, APipelineHasGPipesBubble) {
  RehearsedJob job = JobOf(2);
  ASSERT_TRUE(PredictStep(GPipeOf(2), MeshOf(2, 2), &job).ok());
  EXPECT_DOUBLE_EQ(job.step, 24 + 6 + 3);
  EXPECT_DOUBLE_EQ(job.bubble, 6.0 / 24);
}

// Four messages of half a second come to each device, from the link or from
// another rank: the first forward one and the last gradient are waited for.
TEST(PredictStepTest, MessagesComeLater) {
  for (sim::CountedTraffic sim::DeviceTraffic::*kind :
       {&sim::DeviceTraffic::copies, &sim::DeviceTraffic::messages}) {
    RehearsedJob job = JobOf(2);
    for (RehearsedDevice& each : job.devices) {
      (each.traffic.*kind).seconds = kMicrobatches * 0.5;
    }
    ASSERT_TRUE(PredictStep(GPipeOf(2), MeshOf(1, 1), &job).ok());
    EXPECT_DOUBLE_EQ(job.step, 24 + 6 + 2 * 0.5 + 3);
  }
}

TEST(PredictStepTest, TheLongestWaitAndUpdateStandBehind) {
  RehearsedJob job = JobOf(3);
  job.devices[1].traffic.waited = 5;
  job.devices[2].traffic.waited = 2;
  job.devices[2].work.rest.seconds = 7;
  ASSERT_TRUE(PredictStep(GPipeOf(1), MeshOf(3, 1), &job).ok());
  EXPECT_DOUBLE_EQ(job.step, 24 + 5 + 7);
  EXPECT_DOUBLE_EQ(job.waited, 5);
}

// Two replicas of two ranks with two devices each: the schedule is for four.
TEST(PredictStepTest, AReplicaIsOneSchedules) {
  RehearsedJob job = JobOf(8);
  ASSERT_TRUE(PredictStep(GPipeOf(4), MeshOf(4, 2), &job).ok());
  EXPECT_DOUBLE_EQ(job.step, 24 + 3 * 6 + 3);
}

}  // namespace
}  // namespace tandem::step_prediction_test
