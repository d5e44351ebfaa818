#include "tools/trainer/rehearsal/rehearsal_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "core/device/memory_category.h"

namespace tandem::rehearsal_report_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("sim:1 would hold 5 MiB (parameters 3 MiB, activations "
                        "2 MiB), of --device_memory=4.999MiB"));
}

}  // namespace
}  // namespace tandem::rehearsal_report_test
