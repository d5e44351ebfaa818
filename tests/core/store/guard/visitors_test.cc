#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/store/guard/handshake.h"
#include "core/store/guard/session.h"

namespace tandem::visitors_test {
namespace {

using std::chrono::seconds;

const Nonces kNonces = {std::string(kNonceBytes, 's'),
                        std::string(kNonceBytes, 'c')};

class VisitorsTest : public ::testing::Test {
 protected:
  int Come(const std::string& address, seconds at) {
    OwnedFd fd(open("/dev/null", O_RDONLY));
    const int raw = fd.get();
    visitors_.Add({std::move(fd), address, Session("secret", kNonces.server)},
                  start_ + at);
    return raw;
  }
  void Say(int fd, const std::string& text) {
    visitors_.Find(fd)->session.Take(text, &table_);
  }

  const Visitors::Clock::time_point start_{};
  Visitors visitors_;
  KeyValues table_;
};

TEST_F(VisitorsTest, TheSlowGoAndMembersStay) {
  const int member = Come("member", seconds(0));
  const int silent = Come("silent", seconds(1));
  const int late = Come("late", seconds(2));
  Say(member, ClientProof("secret", kNonces));
  visitors_.NoteMember(member);
  EXPECT_EQ(visitors_.NextEnd(), start_ + seconds(11));
  visitors_.RemoveSlow(start_ + seconds(11));
  EXPECT_NE(visitors_.Find(member), nullptr);
  EXPECT_EQ(visitors_.Find(silent), nullptr);
  EXPECT_NE(visitors_.Find(late), nullptr);
  EXPECT_EQ(visitors_.strangers(), 1);
  visitors_.Remove(member);
  EXPECT_EQ(visitors_.strangers(), 1);
}

TEST_F(VisitorsTest, WhoSaidNothingAndWentWasNoStranger) {
  visitors_.Remove(Come("looked in", seconds(0)));
  EXPECT_EQ(visitors_.strangers(), 0);
  const int half = Come("10.0.0.7:4242", seconds(0));
  Say(half, "half");
  visitors_.Remove(half);
  EXPECT_EQ(visitors_.DescribeStrangers(),
            "1 connection that did not show the job's secret was turned away "
            "from the store, the last from 10.0.0.7:4242");
  visitors_.Remove(half);  // once
  EXPECT_EQ(visitors_.strangers(), 1);
}

TEST_F(VisitorsTest, BeyondTheMostTheOldestGoes) {
  const int first = Come("first", seconds(0));
  for (size_t i = 1; i < Visitors::kMostUnknown; ++i) Come("next", seconds(1));
  EXPECT_NE(visitors_.Find(first), nullptr);
  Come("one more", seconds(2));
  EXPECT_EQ(visitors_.Find(first), nullptr);
  EXPECT_EQ(visitors_.strangers(), 1);
}

TEST_F(VisitorsTest, NobodyIsLeftToRemove) {
  EXPECT_FALSE(visitors_.RemoveOldestUnknown());
  EXPECT_EQ(visitors_.NextEnd(), Visitors::Clock::time_point::max());
}

}  // namespace
}  // namespace tandem::visitors_test
