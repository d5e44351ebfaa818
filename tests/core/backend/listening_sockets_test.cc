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

// A socket that listens, and an epoll instance that watches it.
struct Acceptor {
  OwnedFd socket;
  OwnedFd epoll;
};

Acceptor MakeAcceptor() {
  Acceptor made = {OwnedFd(ListenOn("127.0.0.1", 0).value().fd),
                   OwnedFd(epoll_create1(0))};
  epoll_event in{};
  in.events = EPOLLIN;
  EXPECT_EQ(epoll_ctl(made.epoll.get(), EPOLL_CTL_ADD, made.socket.get(), &in),
            0);
  return made;
}

TEST(ListeningSocketsTest, AcceptorsAreOfWhatWasMade) {
  const Acceptor before = MakeAcceptor();
  EXPECT_THAT(AcceptorsOf([] {}).sockets, IsEmpty());
  Acceptor made;
  const Acceptors seen = AcceptorsOf([&] { made = MakeAcceptor(); });
  EXPECT_THAT(seen.sockets, ElementsAre(made.socket.get()));
  EXPECT_THAT(seen.epolls, ElementsAre(made.epoll.get()));
  EXPECT_THAT(WatchedBy(made.epoll.get()), ElementsAre(made.socket.get()));
}

// Another thread's: a port for metrics, a debugger's.
TEST(ListeningSocketsTest, WhatElseIsOpenedMeanwhileIsNotTakenForIt) {
  const Acceptor before = MakeAcceptor();
  Acceptor made;
  OwnedFd bare;
  OwnedFd watched;
  const Acceptors seen = AcceptorsOf([&] {
    bare = OwnedFd(ListenOn("127.0.0.1", 0).value().fd);
    watched = OwnedFd(ListenOn("127.0.0.1", 0).value().fd);
    epoll_event in{};
    in.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(before.epoll.get(), EPOLL_CTL_ADD, watched.get(), &in),
              0);
    made = MakeAcceptor();
  });
  EXPECT_THAT(seen.sockets, ElementsAre(made.socket.get()));
}

// Another thread's that goes, so that what is made has its numbers.
TEST(ListeningSocketsTest, WhatIsClosedMeanwhileDoesNotHideWhatIsMade) {
  for (const bool with_epoll : {false, true}) {
    Acceptor before = MakeAcceptor();
    const int number = before.socket.get();
    Acceptor made;
    const Acceptors seen = AcceptorsOf([&] {
      before.socket = OwnedFd();
      if (with_epoll) before.epoll = OwnedFd();
      made = MakeAcceptor();
    });
    EXPECT_EQ(made.socket.get(), number);
    EXPECT_THAT(seen.sockets, ElementsAre(made.socket.get()));
    EXPECT_THAT(seen.epolls, ElementsAre(made.epoll.get()));
  }
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
