// Stores under a job's secret, as programs serve them and connect to them.

#include "core/store/guarded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/store/guard/job_secret.h"
#include "core/store/store.h"
#include "tests/core/testing/listening_sockets.h"

namespace tandem::guarded_store_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kLong = seconds(30);
constexpr milliseconds kShort(300);

class GuardedStoreTest : public ::testing::Test {
 protected:
  GuardedStoreTest() { SetJobSecret("the secret of this job"); }
  ~GuardedStoreTest() override { SetJobSecret(""); }
  StorePtr Connect(milliseconds timeout = kLong) {
    return ConnectTcpStore("127.0.0.1", served_->port, timeout,
                           StoreServer::kLauncher)
        .value();
  }
  void Serve() { served_ = ServeTcpStore("127.0.0.1", 0, kLong).value(); }

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
    const absl::Status status =
        ConnectTcpStore("127.0.0.1", served_->port, kLong).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(where), HasSubstr("--job_secret_file")));
  }
  // A process that has none has looked in, and gone without a word.
  EXPECT_THAT(DescribeRejected(member),
              HasSubstr("; 1 connection that did not show the job's secret"));
}

TEST_F(GuardedStoreTest, AStoreWithoutASecretIsNotJoined) {
  SetJobSecret("");
  Serve();
  SetJobSecret("the secret of this job");
  const absl::Status status =
      ConnectTcpStore("127.0.0.1", served_->port, kShort).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("asks for no secret"),
                                      HasSubstr("--job_secret_file")));
}

}  // namespace
}  // namespace tandem::guarded_store_test
