#include "core/elastic/store_rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/owned_fd.h"
#include "core/store/guard/job_secret.h"
#include "core/store/sockets.h"
#include "core/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem::store_rendezvous_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Order = NodeGroup::Order;

// The network between a node and a store.
class Network {
 public:
  explicit Network(int port) : port_(port) {}
  ~Network() {
    ends_ = true;
    thread_.join();
  }

  // Where the store is to be had.
  int port() const { return door_.port; }
  // Nothing goes through, as if the store's host were stopped.
  void Hold(bool holds) { holds_ = holds; }
  // Connections break; later ones lead to `port`.
  void CutAndLeadTo(int port) {
    port_ = port;
    cuts_ = true;
  }

 private:
  using Line = std::pair<OwnedFd, OwnedFd>;

  void Run() {
    std::vector<Line> lines;
    while (!ends_) {
      if (cuts_.exchange(false)) lines.clear();
      if (holds_) {
        std::this_thread::sleep_for(milliseconds(1));
        continue;
      }
      pollfd visitor{listener_.get(), POLLIN, 0};
      if (poll(&visitor, 1, /*timeout=*/1) == 1) {
        lines.emplace_back(
            accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC),
            ConnectWhenServed("127.0.0.1", port_, seconds(30)).value());
      }
      for (const Line& line : lines) {
        Carry(line.first.get(), line.second.get());
        Carry(line.second.get(), line.first.get());
      }
    }
  }

  // What has come, a beat's few bytes.
  static void Carry(int from, int to) {
    char bytes[4096];
    const ssize_t got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got == 0) shutdown(to, SHUT_WR);
    if (got > 0) send(to, bytes, static_cast<size_t>(got), MSG_NOSIGNAL);
  }

  std::atomic<int> port_;
  std::atomic<bool> holds_ = false;
  std::atomic<bool> cuts_ = false;
  std::atomic<bool> ends_ = false;
  const BoundSocket door_ = ListenOn("127.0.0.1", 0).value();
  const OwnedFd listener_{door_.fd};
  std::thread thread_{[this] { Run(); }};
};

// With a secret, and without.
class StoreRendezvousTest : public testing::TestWithParam<std::string> {
 protected:
  // Is set before the store is served.
  struct Secret {
    explicit Secret(const std::string& secret) { SetJobSecret(secret); }
    ~Secret() { SetJobSecret(""); }
  };

  StoreRendezvousOptions Options(int node, int port) const {
    StoreRendezvousOptions options;
    options.host = "127.0.0.1";
    options.port = port;
    options.node = node;
    options.nnodes = 3;
    options.coordinator.join_timeout = milliseconds(0);
    options.beat = milliseconds(20);
    return options;
  }
  static std::unique_ptr<NodeRendezvous> Start(
      const StoreRendezvousOptions& options) {
    return MeetAtStore(*RankCounts::Of({2, 3}, 1, nullptr), options);
  }
  std::unique_ptr<NodeRendezvous> Node(int node, int ranks = 1) {
    StoreRendezvousOptions options = Options(node, served_.port);
    options.coordinator.ranks_per_node = ranks;
    return Start(options);
  }

  const Secret secret_{GetParam()};
  HostedStore served_ = *ServeTcpStore("127.0.0.1", 0, seconds(10));
};

INSTANTIATE_TEST_SUITE_P(WithoutASecretAndWith, StoreRendezvousTest,
                         testing::Values("", "the job's"));

// Waits until this node is told of a group of which that holds.
bool Hears(const NodeRendezvous& node,
           const std::function<bool(const NodeGroup&)>& holds) {
  return Eventually([&] {
    const auto group = node.Group();
    return group.ok() && holds(*group);
  });
}

bool HearsAttempt(const NodeRendezvous& node, int attempt) {
  return Hears(node, [=](const NodeGroup& group) {
    return group.order == Order::kRun && group.attempt == attempt;
  });
}

bool HearsOrder(const NodeRendezvous& node, Order order) {
  return Hears(node,
               [=](const NodeGroup& group) { return group.order == order; });
}

TEST_P(StoreRendezvousTest, NodesComeGoAndEnd) {
  const auto node0 = Node(0);
  const auto node2 = Node(2);
  node0->Wait(0);
  node2->Wait(0);
  ASSERT_TRUE(HearsAttempt(*node0, 0));
  ASSERT_TRUE(HearsAttempt(*node2, 0));
  EXPECT_THAT(node2->Group()->nodes, ElementsAre(0, 2));
  node0->Run(0);
  node2->Run(0);

  const auto node1 = Node(1);
  node1->Wait(0);
  ASSERT_TRUE(HearsOrder(*node0, Order::kStopAtStep));
  ASSERT_TRUE(HearsOrder(*node2, Order::kStopAtStep));
  node0->Wait(1);
  node2->Wait(1);
  for (const auto* node : {&node0, &node1, &node2}) {
    ASSERT_TRUE(HearsAttempt(**node, 1));
    EXPECT_THAT((*node)->Group()->nodes, ElementsAre(0, 1, 2));
    (*node)->Run(1);
  }

  node2->Leave(/*done=*/false, "");
  node0->Wait(2);
  node1->Wait(2);
  ASSERT_TRUE(HearsAttempt(*node1, 2));
  EXPECT_THAT(node1->Group()->nodes, ElementsAre(0, 1));

  node0->Leave(/*done=*/false, "no more");
  ASSERT_TRUE(HearsOrder(*node1, Order::kEnd));
  EXPECT_EQ(node1->Group()->why, "no more");
}

TEST_P(StoreRendezvousTest, AnotherNumberOfRanksIsRefused) {
  const auto node0 = Node(0);
  const auto node1 = Node(1, /*ranks=*/2);
  ASSERT_TRUE(Eventually([&] { return !node1->Group().ok(); }));
  EXPECT_THAT(std::string(node1->Group().status().message()),
              HasSubstr("node 0 starts 1 ranks, this node 2"));
}

TEST_P(StoreRendezvousTest, TheLaterOfTwoLaunchersOfANodeStays) {
  const auto node0 = Node(0);
  const auto earlier = Node(1);
  node0->Wait(0);
  earlier->Wait(0);
  ASSERT_TRUE(HearsAttempt(*earlier, 0));
  const auto later = Node(1);
  ASSERT_TRUE(Eventually([&] { return !earlier->Group().ok(); }));
  EXPECT_THAT(std::string(earlier->Group().status().message()),
              HasSubstr("another launcher with --node_rank=1"));
  EXPECT_TRUE(later->Group().ok());
}

TEST_P(StoreRendezvousTest, ALostStoreIsToldOf) {
  StoreRendezvousOptions options = Options(1, served_.port);
  options.patience = milliseconds(200);
  const auto node1 = Start(options);
  ASSERT_TRUE(
      Eventually([&] { return served_.store->check({"tandem/elastic/1"}); }));
  served_ = HostedStore();
  ASSERT_TRUE(Eventually([&] { return !node1->Group().ok(); }));
  EXPECT_THAT(std::string(node1->Group().status().message()),
              HasSubstr("node 0's launcher, which serves the store at "
                        "127.0.0.1:"));
}

TEST_P(StoreRendezvousTest, AStoreThatIsSilentAtFirstIsWaitedFor) {
  Network network(served_.port);
  network.Hold(true);
  const auto node0 = Node(0);
  StoreRendezvousOptions options = Options(1, network.port());
  options.one_try = milliseconds(300);
  const auto node1 = Start(options);
  node0->Wait(0);
  node1->Wait(0);
  std::this_thread::sleep_for(3 * options.one_try);
  EXPECT_TRUE(node1->Group().ok()) << node1->Group().status();
  network.Hold(false);
  ASSERT_TRUE(HearsAttempt(*node1, 0)) << node1->Group().status();
}

TEST_P(StoreRendezvousTest, ASilentStoreIsWaitedFor) {
  Network network(served_.port);
  const auto node0 = Node(0);
  std::vector<std::string> said;  // by node 1's thread
  StoreRendezvousOptions options = Options(1, network.port());
  options.patience = milliseconds(200);
  options.one_try = milliseconds(300);
  options.say = [&](const std::string& line) { said.push_back(line); };
  auto node1 = Start(options);
  node0->Wait(0);
  node1->Wait(0);
  ASSERT_TRUE(HearsAttempt(*node1, 0));
  node1->Run(0);
  network.Hold(true);
  std::this_thread::sleep_for(3 * options.one_try);
  EXPECT_TRUE(node1->Group().ok()) << node1->Group().status();
  network.Hold(false);
  node0->Wait(1);
  node1->Wait(1);
  ASSERT_TRUE(HearsAttempt(*node1, 1)) << node1->Group().status();
  node1.reset();
  EXPECT_THAT(said, Contains(AllOf(HasSubstr("has not answered for "),
                                   HasSubstr("tandem waits for it"))));
  EXPECT_THAT(said, Contains(HasSubstr("answers again")));
}

TEST_P(StoreRendezvousTest, ALostConnectionIsMadeAgain) {
  Network network(served_.port);
  const auto node0 = Node(0);
  const auto node1 = Start(Options(1, network.port()));
  for (int attempt = 0; attempt < 3; ++attempt) {
    node0->Wait(attempt);
    node1->Wait(attempt);
    ASSERT_TRUE(HearsAttempt(*node1, attempt)) << node1->Group().status();
    network.CutAndLeadTo(served_.port);
  }
}

TEST_P(StoreRendezvousTest, AStoreThatStaysSilentIsLost) {
  Network network(served_.port);
  StoreRendezvousOptions options = Options(1, network.port());
  options.lost_after = milliseconds(1000);
  // Each call to a guarded store ends before a beat is over.
  options.beat = milliseconds(200);
  options.one_try = milliseconds(100);
  const auto node1 = Start(options);
  ASSERT_TRUE(
      Eventually([&] { return served_.store->check({"tandem/elastic/1"}); }));
  network.Hold(true);
  ASSERT_TRUE(Eventually([&] { return !node1->Group().ok(); }));
  EXPECT_THAT(std::string(node1->Group().status().message()),
              HasSubstr("is not heard of (no answer for "));
  network.Hold(false);  // the call that still waits may end
}

// The store of a job that does not know this node's part.
TEST_P(StoreRendezvousTest, AStoreThatWasStartedAnewIsNotGoneOnWith) {
  Network network(served_.port);
  const auto node1 = Start(Options(1, network.port()));
  const auto beat = [&] { return TextAt(*served_.store, "tandem/elastic/1"); };
  ASSERT_TRUE(Eventually([&] { return !beat().empty(); }));
  // By a second beat the node has had the answer to its first: until then any
  // store is the one that it has just joined.
  const std::string first = beat();
  ASSERT_TRUE(Eventually([&] { return beat() != first; }));
  const HostedStore other = *ServeTcpStore("127.0.0.1", 0, seconds(10));
  network.CutAndLeadTo(other.port);
  ASSERT_TRUE(Eventually([&] { return !node1->Group().ok(); }));
  EXPECT_THAT(std::string(node1->Group().status().message()),
              HasSubstr("is not heard of (it was started anew)"));
}

}  // namespace
}  // namespace tandem::store_rendezvous_test
