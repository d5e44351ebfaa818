
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "core/backend/backend.h"
#include "core/backend/gloo_connections.h"
#include "core/base/owned_fd.h"
#include "core/base/torch_status.h"
#include "core/store/sockets.h"
#include "core/store/store.h"
#include "tests/core/testing/on_threads.h"
#include "tests/core/testing/process_testing.h"

namespace tandem::pair_proof_test {
namespace {

using std::chrono::milliseconds;
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
  EXPECT_THAT(NewAcceptors([] {}).sockets, IsEmpty());
  Acceptor made;
  const Acceptors seen = NewAcceptors([&] { made = MakeAcceptor(); });
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
  const Acceptors seen = NewAcceptors([&] {
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
    const Acceptors seen = NewAcceptors([&] {
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
  // The owner of the instance does so at its end.
  EXPECT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_DEL, socket.fd, nullptr), 0);
}

TEST(ListeningSocketsTest, WhereNobodyAcceptsIsAnError) {
  EXPECT_FALSE(StopAccepting(-1).ok());
  const OwnedFd unwatched(ListenOn("127.0.0.1", 0).value().fd);
  EXPECT_TRUE(absl::IsNotFound(StopAccepting(unwatched.get())));
}

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

// Groups on Gloo whose ranks prove to each other who they are, and a stranger
// that has taken a rank's place.

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

absl::StatusOr<GroupPtr> Join(const StorePtr& store, int rank, int size,
                              milliseconds timeout) {
  GroupPlace place;
  place.store = store;
  place.rank = rank;
  place.hosts.assign(static_cast<size_t>(size), "host");
  place.name = "group";
  place.job = store;
  CommunicatorOptions options;
  options.backend = "gloo";
  options.timeout = timeout;
  return MakeProcessGroup(place, options);
}

class PairProofTest : public ::testing::TestWithParam<int> {};

TEST_P(PairProofTest, ATrueGroupIsProvenAndWorks) {
  const int size = GetParam();
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  OnThreads(size, [&](int rank) {
    const auto group = Join(store, rank, size, std::chrono::seconds(30));
    ASSERT_TRUE(group.ok()) << group.status();
    std::vector<at::Tensor> ones = {at::full({3}, 1.0f)};
    const absl::Status summed =
        CatchTorch([&] { (*group)->allreduce(ones)->wait(); });
    EXPECT_TRUE(summed.ok()) << summed;
    EXPECT_EQ(ones[0][2].item<float>(), static_cast<float>(size));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, PairProofTest, ::testing::Values(1, 2, 7));

int PortOf(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

// Connections that say what peers say to Gloo, each another of the first
// numbers, and behind it `more`.
std::vector<OwnedFd> TakePlaces(int port, const std::string& more) {
  std::vector<OwnedFd> places;
  for (int64_t number = 0; number < 8; ++number) {
    places.push_back(
        ConnectWhenServed("127.0.0.1", port, std::chrono::seconds(30)).value());
    std::string text(reinterpret_cast<const char*>(&number), sizeof(number));
    text += more;
    EXPECT_EQ(send(places.back().get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  return places;
}

class StrangerTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Rank 0 listens, a stranger comes, and only then rank 1. Whether one of them
  // was disturbed; then both fail.
  static bool IsDisturbed() {
    const StorePtr store = NewHashStore(std::chrono::seconds(30));
    constexpr milliseconds kTimeout = std::chrono::seconds(3);
    absl::Status zero;
    std::thread other([&] { zero = Join(store, 0, 2, kTimeout).status(); });
    while (ListeningDescriptors().empty()) std::this_thread::yield();
    const auto places =
        TakePlaces(PortOf(*ListeningDescriptors().begin()), GetParam());
    const absl::Status one = Join(store, 1, 2, kTimeout).status();
    other.join();
    EXPECT_EQ(zero.ok(), one.ok()) << zero << one;
    return !zero.ok();
  }
};

// Gloo has the rank with the lower port listen: in half of the rounds it is
// rank 1, whom the stranger has not come to.
TEST_P(StrangerTest, WhoTakesAPlaceDoesNotJoin) {
  constexpr int kRounds = 30;
  int round = 0;
  while (round < kRounds && !IsDisturbed()) ++round;
  EXPECT_LT(round, kRounds) << "rank 0 never listened";
}

INSTANTIATE_TEST_SUITE_P(Says, StrangerTest,
                         ::testing::Values("", std::string(4096, '\0'),
                                           std::string(4096, '\xff')));

}  // namespace
}  // namespace tandem::pair_proof_test
