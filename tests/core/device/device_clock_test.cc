// Times of a fake device's events, over days.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "core/device/device_moment.h"

namespace tandem::device_clock_test {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Comes at a time of the device's, and tells times as CUDA does.
struct FakeEvent {
  double milliseconds = 0;
  bool has_come = true;
  int* waits = nullptr;

  bool query() const { return has_come; }
  void synchronize() const { ++*waits; }
  double elapsedTime(const FakeEvent& later) const {
    return static_cast<float>(later.milliseconds - milliseconds);
  }
};

using FakeClock = DeviceClock<FakeEvent>;
using Clock = FakeClock::Clock;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

class DeviceClockTest : public testing::Test {
 protected:
  std::shared_ptr<const FakeClock::Origin> OriginAt(Clock::duration age,
                                                    bool has_come = true) {
    return clock_.OriginNow(
        [&] {
          ++records_;
          return std::make_unique<FakeEvent>(
              FakeEvent{Milliseconds(age), has_come, &waits_});
        },
        start_ + age);
  }

  const Clock::time_point start_ = Clock::now();
  FakeClock clock_;
  int records_ = 0;
  int waits_ = 0;
};

TEST_F(DeviceClockTest, TimesKeepTheirDigits) {
  const Clock::time_point first = OriginAt({})->time;
  for (Clock::duration age{}; age < hours(48); age += microseconds(39987654)) {
    const auto origin = OriginAt(age);
    const FakeEvent begin{Milliseconds(age) + 3};
    const FakeEvent end{Milliseconds(age) + 3.25};
    const double taken =
        Milliseconds(origin->TimeOf(end) - origin->TimeOf(begin));
    ASSERT_NEAR(taken, 0.25, 0.01) << Milliseconds(age);
    ASSERT_NEAR(Milliseconds(origin->TimeOf(begin) - first), begin.milliseconds,
                10);
  }
  EXPECT_EQ(waits_, 1);
}

TEST_F(DeviceClockTest, AMomentKeepsItsOrigin) {
  const auto first = OriginAt({});
  EXPECT_EQ(OriginAt(seconds(59)), first);
  EXPECT_NE(OriginAt(minutes(1)), first);
  const FakeEvent event{1000};
  EXPECT_EQ(Milliseconds(first->TimeOf(event) - first->time), 1000);
}

// A device that is behind is not waited for: the origin stays until it comes.
TEST_F(DeviceClockTest, WaitsForNoOther) {
  const auto first = OriginAt({});
  EXPECT_EQ(OriginAt(minutes(1), /*has_come=*/false), first);
  EXPECT_EQ(OriginAt(minutes(5)), first);
  EXPECT_EQ(records_, 2);
  EXPECT_EQ(waits_, 1);
}

}  // namespace
}  // namespace tandem::device_clock_test
