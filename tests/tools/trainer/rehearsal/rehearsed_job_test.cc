// Rehearsed devices: gathered from ranks, predicted from, and described.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/device/memory_category.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/schedule/schedules.h"
#include "tools/trainer/rehearsal/rehearsal.h"
#include "tools/trainer/rehearsal/rehearsal_report.h"

namespace tandem::rehearsed_job_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Every number another one.
RehearsedDevice DeviceOf(int number) {
  double next = number + 0.25;
  RehearsedDevice device;
  device.name = absl::StrCat("sim:", number);
  device.peak.Add(MemoryCategory::kOptimizer, (int64_t{1} << 40) + number);
  for (sim::CountedWork* each :
       {&device.work.forward, &device.work.backward, &device.work.rest}) {
    *each = {next * 1e15, next * 1e12, next, number + 7};
    next *= 3;
  }
  for (sim::CountedTraffic* each :
       {&device.traffic.copies, &device.traffic.messages,
        &device.traffic.collectives}) {
    *each = {next * 1e9, next, number + 5};
    next *= 3;
  }
  device.traffic.waited = next;
  return device;
}

void ExpectSame(const sim::CountedWork& a, const sim::CountedWork& b) {
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.calls, b.calls);
}

void ExpectSame(const sim::CountedTraffic& a, const sim::CountedTraffic& b) {
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.calls, b.calls);
}

void ExpectSame(const RehearsedDevice& a, const RehearsedDevice& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.peak.total, b.peak.total);
  EXPECT_EQ(a.peak.by_category, b.peak.by_category);
  ExpectSame(a.work.forward, b.work.forward);
  ExpectSame(a.work.backward, b.work.backward);
  ExpectSame(a.work.rest, b.work.rest);
  ExpectSame(a.traffic.copies, b.traffic.copies);
  ExpectSame(a.traffic.messages, b.traffic.messages);
  ExpectSame(a.traffic.collectives, b.traffic.collectives);
  EXPECT_EQ(a.traffic.waited, b.traffic.waited);
}

TEST(GatherDevicesTest, EveryRankLearnsOfAllInTheirOrder) {
  for (const int ranks : {1, 3}) {
    ExpectOk(
        RunThreadRanks(ranks, [ranks](Communicator& world) -> absl::Status {
          const int first = 2 * world.rank();
          TANDEM_ASSIGN_OR_RETURN(
              const std::vector<RehearsedDevice> all,
              GatherDevices({DeviceOf(first), DeviceOf(first + 1)}, world));
          EXPECT_EQ(all.size(), 2u * static_cast<size_t>(ranks));
          for (size_t i = 0; i < all.size(); ++i) {
            ExpectSame(all[i], DeviceOf(static_cast<int>(i)));
          }
          return absl::OkStatus();
        }));
  }
}

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

Mesh MeshOf(int ranks, int pipe) {
  return *Mesh::Create(ranks, {.pipe = pipe});
}

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

RehearsedDevice Device(const std::string& name, int64_t parameters,
                       int64_t activations) {
  RehearsedDevice device;
  device.name = name;
  device.peak.Add(MemoryCategory::kParameters, parameters);
  device.peak.Add(MemoryCategory::kActivations, activations);
  device.work.forward = {2e12, 0, 0.5, 1};
  device.work.backward = {4e12, 0, 1.25, 1};
  device.work.rest = {0, 0, 0.0625, 1};
  return device;
}

RehearsedJob TwoDevices() {
  RehearsedJob job;
  job.devices = {Device("sim:0", 4 << 20, 0),
                 Device("sim:1", 3 << 20, 2 << 20)};
  job.step = 2;
  job.bubble = 0.125;
  return job;
}

TrainOptions Options(const std::string& memory = "") {
  TrainOptions options;
  options.batch_size = 7;
  options.devices.device_memory = memory;
  return options;
}

TEST(RehearsalReportTest, ATableHasARowForEachDevice) {
  EXPECT_EQ(
      DescribeRehearsal(TwoDevices(), Options("6MiB")),
      "device   peak  other  parameters  gradients  optimizer  activations  "
      "temporaries  TFLOP  forward ms  backward ms  update ms\n"
      "sim:0   4 MiB    0 B       4 MiB        0 B        0 B          0 B  "
      "        0 B      6         500         1250       62.5\n"
      "sim:1   5 MiB    0 B       3 MiB        0 B        0 B        2 MiB  "
      "        0 B      6         500         1250       62.5\n"
      "a step would take 2000 ms: 3.5 samples/s, 6 TFLOP/s; bubble 12.5 % of "
      "the busiest device's work\n"
      "fullest: sim:1 with 5 MiB of --device_memory=6MiB\n");
}

RehearsedJob WithTraffic(double seconds) {
  RehearsedJob job = TwoDevices();
  job.devices[0].traffic.copies = {1 << 20, seconds, 3};
  job.devices[0].traffic.messages = {1 << 20, seconds, 3};
  job.devices[1].traffic.collectives = {5 << 20, seconds, 1};
  job.devices[1].traffic.waited = seconds / 2;
  job.waited = seconds / 2;
  return job;
}

TEST(RehearsalReportTest, WhatIsSentHasColumns) {
  EXPECT_EQ(
      DescribeRehearsal(WithTraffic(0.25), Options()),
      "device   peak  other  parameters  gradients  optimizer  activations  "
      "temporaries  TFLOP  forward ms  backward ms  update ms  received  "
      "in collectives  waits ms\n"
      "sim:0   4 MiB    0 B       4 MiB        0 B        0 B          0 B  "
      "        0 B      6         500         1250       62.5     2 MiB  "
      "           0 B         0\n"
      "sim:1   5 MiB    0 B       3 MiB        0 B        0 B        2 MiB  "
      "        0 B      6         500         1250       62.5       0 B  "
      "         5 MiB       125\n"
      "a step would take 2000 ms: 3.5 samples/s, 6 TFLOP/s; bubble 12.5 % of "
      "the busiest device's work; 125 ms of it waits for collectives\n"
      "fullest: sim:1 with 5 MiB\n");
}

TEST(RehearsalReportTest, LinksWithoutSpeedsTakeNoTime) {
  EXPECT_THAT(DescribeRehearsal(WithTraffic(0), Options()),
              AllOf(HasSubstr("communication takes no time: give "
                              "--sim_link_bandwidth and "
                              "--sim_network_bandwidth\n"),
                    HasSubstr("in collectives")));
}

TEST(RehearsalReportTest, TheSpeedThatIsMissingIsNamed) {
  RehearsedJob job = WithTraffic(0);
  job.devices[0].traffic.copies = {};
  EXPECT_THAT(DescribeRehearsal(job, Options()),
              HasSubstr("takes no time: give --sim_network_bandwidth\n"));
  job = WithTraffic(0.25);
  job.devices[0].traffic.copies.seconds = 0;
  EXPECT_THAT(DescribeRehearsal(job, Options()),
              HasSubstr("collectives; some communication takes no time: give "
                        "--sim_link_bandwidth\n"));
}

TEST(RehearsalReportTest, WithoutSpeedsThereAreNoTimes) {
  RehearsedJob job = TwoDevices();
  job.step = 0;
  EXPECT_THAT(DescribeRehearsal(job, Options()),
              AllOf(HasSubstr("no times: give --peak_tflops"),
                    HasSubstr("fullest: sim:1 with 5 MiB\n"),
                    Not(HasSubstr("forward ms")), Not(HasSubstr("bubble"))));
}

TEST(CheckFitsTest, TheFullestDeviceDecides) {
  EXPECT_TRUE(CheckFits(TwoDevices(), Options()).ok());
  EXPECT_TRUE(CheckFits(TwoDevices(), Options("5MiB")).ok());
  const absl::Status status = CheckFits(TwoDevices(), Options("4.999MiB"));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "sim:1 would hold 5 MiB (parameters 3 MiB, activations "
                       "2 MiB), of --device_memory=4.999MiB"));
}

}  // namespace
}  // namespace tandem::rehearsed_job_test
