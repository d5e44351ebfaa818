#include "core/store/guarded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/store/gather.h"
#include "core/store/guard/job_secret.h"
#include "core/store/shared_store.h"
#include "core/store/store.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/core/testing/listening_sockets.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::guarded_store_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Optional;

constexpr milliseconds kLong = std::chrono::minutes(10);

// What each of `size` ranks got, and how often it asked the store.
struct Rank {
  absl::StatusOr<GatheredTexts> got;
  int64_t operations = 0;
};

std::vector<Rank> GatherOn(int size) {
  const StorePtr store = NewHashStore(kLong);
  std::vector<Rank> ranks(size);
  OnThreads(size, [&](int rank) {
    CountingStore mine(store);
    // Two hosts; and names that could be taken for something else.
    ranks[rank].got = GatherAtStore(
        mine, "hosts", rank, size,
        rank % 2 == 0 ? "even: 3:abc" : std::string("odd\n\0", 5), kLong);
    ranks[rank].operations = mine.operations();
  });
  return ranks;
}

TEST(StoreGatherTest, EveryRankGetsAllTextsInOrder) {
  for (const int size : {1, 2, 7}) {
    for (const Rank& rank : GatherOn(size)) {
      ASSERT_TRUE(rank.got.ok()) << rank.got.status();
      ASSERT_EQ(rank.got->size(), static_cast<size_t>(size));
      for (int r = 0; r < size; ++r) {
        EXPECT_THAT((*rank.got)[r],
                    Optional(r % 2 == 0 ? std::string("even: 3:abc")
                                        : std::string("odd\n\0", 5)));
      }
    }
  }
}

TEST(StoreGatherTest, OperationsOfARankDoNotGrowWithTheRanks) {
  for (const int size : {2, 8, 24}) {
    int64_t all = 0;
    for (const Rank& rank : GatherOn(size)) {
      EXPECT_THAT(rank.operations, Le(6));
      all += rank.operations;
    }
    EXPECT_EQ(all, 4 * size + 2);
  }
}

TEST(StoreGatherTest, ATimeoutTellsWhoHasCome) {
  const StorePtr store = NewHashStore(kLong);
  constexpr milliseconds kTimeout = std::chrono::seconds(2);  // to meet in
  std::thread other([&] {
    EXPECT_TRUE(GatherAtStore(*store, "k", 2, 3, "c", kTimeout).ok());
  });
  const auto got = GatherAtStore(*store, "k", 0, 3, "a", kTimeout);
  other.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(Optional(std::string("a")), std::nullopt,
                                Optional(std::string("c"))));
}

// Stores under a job's secret, as programs serve them and connect to them.

constexpr milliseconds kTimeout = seconds(30);
constexpr milliseconds kShort(300);

class GuardedStoreTest : public ::testing::Test {
 protected:
  GuardedStoreTest() { SetJobSecret("the secret of this job"); }
  ~GuardedStoreTest() override { SetJobSecret(""); }
  StorePtr Connect(milliseconds timeout = kTimeout) {
    return ConnectTcpStore("127.0.0.1", served_->port, timeout,
                           StoreServer::kLauncher)
        .value();
  }
  void Serve() { served_ = ServeTcpStore("127.0.0.1", 0, kTimeout).value(); }

  std::optional<HostedStore> served_;
};

TEST_F(GuardedStoreTest, ListensOnTheGivenAddressAlone) {
  Serve();
  EXPECT_THAT(ListeningSockets(),
              ElementsAre(absl::StrCat("127.0.0.1:", served_->port)));
}

TEST_F(GuardedStoreTest, IsAStore) {
  Serve();
  const StorePtr client = Connect();
  served_->store->set("key", std::string("value"));
  EXPECT_EQ(client->get_to_str("key"), "value");
  EXPECT_EQ(client->add("n", 3), 3);
  EXPECT_EQ(client->clone()->add("n", 4), 7);
  EXPECT_EQ(client->compareSet("key", std::string("value"), std::string("new")),
            "new");
  client->append("key", {'e', 'r'});
  EXPECT_TRUE(client->check({"key", "n"}));
  client->multiSet({"a", "b"}, {{'1'}, {}});
  EXPECT_THAT(client->multiGet({"a", "b", "key"}),
              ElementsAre(ElementsAre('1'), ElementsAre(),
                          ElementsAre('n', 'e', 'w', 'e', 'r')));
  EXPECT_EQ(client->getNumKeys(), 4);
  EXPECT_TRUE(client->deleteKey("a"));
  EXPECT_FALSE(client->deleteKey("a"));
  EXPECT_TRUE(client->hasExtendedApi());
}

TEST_F(GuardedStoreTest, AWaitHoldsUpNobody) {
  Serve();
  const StorePtr client = Connect();
  std::thread waits([&] { EXPECT_EQ(client->get_to_str("late"), "it"); });
  EXPECT_EQ(client->add("n", 1), 1);
  client->set("late", std::string("it"));
  waits.join();
  const absl::Status late =
      CatchTorch([&] { client->wait({"never"}, milliseconds(50)); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
}

TEST_F(GuardedStoreTest, ALostServerIsNamed) {
  Serve();
  const StorePtr client = Connect();
  served_.reset();
  const absl::Status lost = CatchTorch([&] { client->add("n", 1); });
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_THAT(DescribeSilence(client, lost),
              testing::MatchesRegex(
                  "not heard of: the launcher, which serves the store: its "
                  "connection is lost \\(127.0.0.1:[0-9]+\\)"));
  EXPECT_EQ(DescribeRejected(client), "");
}

TEST_F(GuardedStoreTest, WhoHasAnotherSecretOrNoneIsTurnedAwayAndCounted) {
  Serve();
  const StorePtr member = Connect();
  EXPECT_EQ(DescribeRejected(member), "");
  const std::string where = absl::StrCat("127.0.0.1:", served_->port);
  for (const char* secret : {"the secret of another job", ""}) {
    SetJobSecret(secret);
    EXPECT_THAT(ConnectTcpStore("127.0.0.1", served_->port, kTimeout).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, where,
                         "--job_secret_file"));
  }
  // A process that has none has looked in, and gone without a word.
  EXPECT_THAT(DescribeRejected(member),
              HasSubstr("; 1 connection that did not show the job's secret"));
}

TEST_F(GuardedStoreTest, AStoreWithoutASecretIsNotJoined) {
  SetJobSecret("");
  Serve();
  SetJobSecret("the secret of this job");
  EXPECT_THAT(ConnectTcpStore("127.0.0.1", served_->port, kShort).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "asks for no secret", "--job_secret_file"));
}

// One client of a TCPStore, which has one connection and one lock.
class SharedStoreTest : public testing::Test {
 protected:
  HostedStore served_ = ServeTcpStore("127.0.0.1", 0, kLong).value();
  const StorePtr store_ = c10::make_intrusive<SharedStore>(
      ConnectTcpStore("127.0.0.1", served_.port, kLong).value());
};

TEST_F(SharedStoreTest, OneThatWaitsIsEndedByWhatAnotherThreadSets) {
  std::thread waiting([this] {
    EXPECT_TRUE(CatchTorch([this] { store_->wait({"late"}, kLong); }).ok());
  });
  std::thread getting([this] { EXPECT_EQ(store_->get_to_str("later"), "2"); });
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(store_->check({"late", "later"}));
  store_->set("late", std::string("1"));
  waiting.join();
  store_->set("later", std::string("2"));
  getting.join();
}

TEST_F(SharedStoreTest, SeveralWaitsEndEachWithItsKey) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      const std::string key = std::to_string(i);
      EXPECT_TRUE(CatchTorch([&] { store_->wait({key}, kLong); }).ok());
    });
  }
  for (int i = 3; i >= 0; --i) {
    store_->set(std::to_string(i), std::string("1"));
    threads[i].join();
  }
}

TEST_F(SharedStoreTest, ATimeoutIsTheWholeWaitsAndNamesTheKeys) {
  EXPECT_THAT(
      CatchTorch([this] {
        store_->wait({"a", "b"}, milliseconds(250));
      }),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "250ms, keys: a, b"));
}

// Each rank of a large job has a key.
TEST_F(SharedStoreTest, OfManyKeysATimeoutNamesSome) {
  const std::vector<std::string> keys(100, "k");
  EXPECT_THAT(CatchTorch([&] { store_->wait(keys, milliseconds(1)); }),
              Says("keys: k, k, k, k, k, k, k, k and 92 more"));
}

TEST_F(SharedStoreTest, ItDoesWhatItsClientDoes) {
  EXPECT_EQ(store_->add("n", 3), 3);
  store_->append("list", {'a'});
  store_->append("list", {'b'});
  EXPECT_EQ(store_->get_to_str("list"), "ab");
  EXPECT_EQ(store_->compareSet("c", std::string(), std::string("x")), "x");
  EXPECT_TRUE(store_->check({"n", "list"}));
  EXPECT_EQ(store_->multiGet({"list", "c"}).size(), 2u);
  EXPECT_TRUE(store_->deleteKey("c"));
  EXPECT_FALSE(store_->check({"c"}));
}

}  // namespace
}  // namespace tandem::guarded_store_test
