#include "core/base/call_within.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>

#include "absl/synchronization/notification.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kLong = std::chrono::minutes(10);

TEST(CallWithinTest, GivesWhatTheCallReturnsOrThrows) {
  EXPECT_EQ(CallWithin<int>(kLong, [] { return 3; }).value(), 3);
  const absl::Status thrown = CallWithin<int>(kLong, []() -> int {
                                throw std::out_of_range("no such thing");
                              }).status();
  EXPECT_EQ(thrown.code(), absl::StatusCode::kOutOfRange) << thrown;
}

TEST(CallWithinTest, WhatDoesNotReturnIsLeftBehind) {
  const auto end = std::make_shared<absl::Notification>();
  const absl::Status late = CallWithin<bool>(milliseconds(1), [end] {
                              end->WaitForNotification();
                              return true;
                            }).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  end->Notify();
}

TEST(CallThreadTest, ItsCallsRunInTheirOrderOnOneThread) {
  CallThread thread;
  const auto id = [] { return std::this_thread::get_id(); };
  const auto first = thread.Within<std::thread::id>(kLong, id).value();
  EXPECT_EQ(thread.Within<std::thread::id>(kLong, id).value(), first);
  EXPECT_NE(first, std::this_thread::get_id());
}

// Says so when it is destroyed.
struct Witness {
  ~Witness() { std::fputs("destroyed", stderr); }
};

void ExitWith(bool left_behind) {
  static const Witness witness;
  CallWithin<bool>(milliseconds(left_behind ? 2000 : 60000),  // it has begun
                   [left_behind] {
                     while (left_behind) std::this_thread::sleep_for(kLong);
                     return true;
                   })
      .status()
      .IgnoreError();
  std::exit(3);
}

TEST(CallThreadDeathTest, OneLeftBehindDoesNotOutliveStaticObjects) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitWith(true), ExitedWithCode(3), Not(HasSubstr("destroyed")));
  EXPECT_EXIT(ExitWith(false), ExitedWithCode(3), HasSubstr("destroyed"));
}

}  // namespace
}  // namespace tandem
