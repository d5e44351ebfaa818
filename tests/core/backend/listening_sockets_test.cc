#include "core/backend/listening_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>

#include "absl/status/status.h"
#include "core/base/owned_fd.h"
#include "core/store/sockets.h"

namespace tandem::listening_sockets_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ListeningSocketsTest, ThoseOfTcpThatListenAreSeen) {
  EXPECT_THAT(ListeningDescriptors(), IsEmpty());
  const OwnedFd idle(socket(AF_INET, SOCK_STREAM, 0));
  const OwnedFd four(ListenOn("127.0.0.1", 0).value().fd);
  EXPECT_THAT(ListeningDescriptors(), ElementsAre(four.get()));
}

TEST(ListeningSocketsTest, DescriptorsAreOfWhatWasMade) {
  const OwnedFd before(ListenOn("127.0.0.1", 0).value().fd);
  OwnedFd made;
  EXPECT_THAT(DescriptorsOf([] {}), IsEmpty());
  const auto seen =
      DescriptorsOf([&] { made = OwnedFd(ListenOn("127.0.0.1", 0)->fd); });
  EXPECT_THAT(seen, ElementsAre(made.get()));
}

// How many connections epoll tells of, within a moment.
int Awaiting(int epoll) {
  epoll_event event{};
  return epoll_wait(epoll, &event, 1, /*timeout in ms=*/200);
}

TEST(ListeningSocketsTest, WhoStopsAcceptingKeepsWhoIsThere) {
  const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
  const OwnedFd listener(socket.fd);
  const OwnedFd epoll(epoll_create1(0));
  epoll_event in{};
  in.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket.fd, &in), 0);
  const OwnedFd before =
      ConnectWhenServed("127.0.0.1", socket.port, seconds(30)).value();
  ASSERT_EQ(Awaiting(epoll.get()), 1);
  const OwnedFd accepted(accept(socket.fd, nullptr, nullptr));
  ASSERT_TRUE(StopAccepting(socket.fd).ok());
  const OwnedFd after =
      ConnectWhenServed("127.0.0.1", socket.port, seconds(30)).value();
  EXPECT_EQ(Awaiting(epoll.get()), 0);
  char byte = 0;
  ASSERT_EQ(send(before.get(), "x", 1, 0), 1);
  EXPECT_EQ(recv(accepted.get(), &byte, 1, 0), 1);
  // As whoever looks after it does at its end.
  EXPECT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_DEL, socket.fd, nullptr), 0);
}

TEST(ListeningSocketsTest, WhereNobodyAcceptsIsAnError) {
  EXPECT_FALSE(StopAccepting(-1).ok());
  const OwnedFd unwatched(ListenOn("127.0.0.1", 0).value().fd);
  EXPECT_TRUE(absl::IsNotFound(StopAccepting(unwatched.get())));
}

}  // namespace
}  // namespace tandem::listening_sockets_test
