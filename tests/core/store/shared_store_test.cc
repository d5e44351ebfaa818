#include "core/store/shared_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/base/torch_status.h"
#include "core/store/store.h"

namespace tandem::shared_store_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Longer than the test may take.
constexpr milliseconds kLong = std::chrono::minutes(10);

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
  const absl::Status late = CatchTorch([this] {
    store_->wait({"a", "b"}, milliseconds(250));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("250ms, keys: a, b"));
}

// Each rank of a large job has a key.
TEST_F(SharedStoreTest, OfManyKeysATimeoutNamesSome) {
  const std::vector<std::string> keys(100, "k");
  const absl::Status late =
      CatchTorch([&] { store_->wait(keys, milliseconds(1)); });
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("keys: k, k, k, k, k, k, k, k and 92 more"));
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
}  // namespace tandem::shared_store_test
