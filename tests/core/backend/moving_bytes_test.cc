#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "core/backend/listening_sockets.h"
#include "core/base/owned_fd.h"
#include "core/store/sockets.h"
#include "tests/core/testing/process_testing.h"

namespace tandem::moving_bytes_test {
namespace {

// A connection, one end of which an epoll instance watches.
class MovingBytesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
    const OwnedFd listener(socket.fd);
    far_ = ConnectWhenServed("127.0.0.1", socket.port, std::chrono::seconds(30))
               .value();
    near_ = OwnedFd(accept(socket.fd, nullptr, nullptr));
    epoll_event in{};
    in.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, near_.get(), &in), 0);
  }

  static void Send(const OwnedFd& from, size_t bytes) {
    const std::string text(bytes, 'x');
    ASSERT_EQ(send(from.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(bytes));
  }

  const OwnedFd epoll_{epoll_create1(0)};
  OwnedFd near_;
  OwnedFd far_;
};

TEST_F(MovingBytesTest, ThoseOfEitherDirectionCountOnce) {
  MovingBytes bytes({epoll_.get()});
  EXPECT_FALSE(bytes.HaveMoved());
  Send(far_, 20000);
  EXPECT_TRUE(Eventually([&] { return bytes.HaveMoved(); }));
  EXPECT_FALSE(bytes.HaveMoved());
  Send(near_, 20000);
  EXPECT_TRUE(Eventually([&] { return bytes.HaveMoved(); }));
  EXPECT_FALSE(bytes.HaveMoved());
}

TEST_F(MovingBytesTest, AFewAreNoTransfer) {
  MovingBytes bytes({epoll_.get()});
  for (int i = 0; i < 10; ++i) {
    Send(far_, 100);
    EXPECT_FALSE(bytes.HaveMoved());
  }
}

TEST_F(MovingBytesTest, WhatNobodyWatchesDoesNotCount) {
  const OwnedFd other(epoll_create1(0));
  MovingBytes bytes({other.get()});
  Send(far_, 20000);
  EXPECT_FALSE(bytes.HaveMoved());
}

}  // namespace
}  // namespace tandem::moving_bytes_test
