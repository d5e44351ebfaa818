#include "tools/trainer/rehearsal/rehearsed_job.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/thread_ranks.h"

namespace tandem::rehearsed_job_test {
namespace {

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
    const absl::Status status =
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
        });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace tandem::rehearsed_job_test
