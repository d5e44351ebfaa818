#include "core/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/sockets.h"
#include "core/store_server.h"
#include "tests/core/listening_sockets.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kLong = seconds(30);
constexpr milliseconds kShort(1200);

Launch TcpLaunch(int rank, int world_size, int port) {
  Launch launch;
  launch.rank = rank;
  launch.world_size = world_size;
  launch.rendezvous.kind = Rendezvous::Kind::kTcp;
  launch.rendezvous.host = "127.0.0.1";
  launch.rendezvous.port = port;
  return launch;
}

int FreePort() {
  const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
  close(socket.fd);
  return socket.port;
}

TEST(TcpStoreTest, ListensOnTheGivenAddressAlone) {
  ASSERT_THAT(ListeningSockets(), IsEmpty());
  auto served = ServeTcpStore("127.0.0.1", 0, kLong);
  ASSERT_TRUE(served.ok()) << served.status();
  EXPECT_GT(served->port, 0);
  EXPECT_THAT(ListeningSockets(),
              ElementsAre(absl::StrCat("127.0.0.1:", served->port)));
}

TEST(TcpStoreTest, ClientsSeeWhatTheServerSets) {
  auto served = ServeTcpStore("127.0.0.1", 0, kLong);
  ASSERT_TRUE(served.ok()) << served.status();
  auto client = ConnectTcpStore("127.0.0.1", served->port, kLong);
  ASSERT_TRUE(client.ok()) << client.status();
  served->store->set("key", std::string("value"));
  EXPECT_EQ((*client)->get_to_str("key"), "value");
  EXPECT_EQ((*client)->add("n", 3), 3);
  EXPECT_EQ(served->store->add("n", 4), 7);
}

TEST(TcpStoreTest, APortInUseIsNamed) {
  auto first = ServeTcpStore("127.0.0.1", 0, kLong);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second =
      ServeTcpStore("127.0.0.1", first->port, kLong).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(
      second.message(),
      HasSubstr(absl::StrCat("port ", first->port, " on 127.0.0.1 is in use")));
}

TEST(TcpStoreTest, AnAddressOfAnotherMachineIsRefused) {
  // 192.0.2.0/24 is kept for documentation: nobody has it.
  const absl::Status status = ServeTcpStore("192.0.2.1", 0, kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("not an address of this machine"));
  EXPECT_EQ(ServeTcpStore("no.such.host.invalid", 0, kLong).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ServeTcpStore("127.0.0.1", 65536, kLong).ok());
  EXPECT_FALSE(ServeTcpStore("127.0.0.1", -1, kLong).ok());
}

TEST(TcpStoreTest, NobodyThereIsAnErrorInBoundedTime) {
  const int port = FreePort();
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status =
      ConnectTcpStore("127.0.0.1", port, kShort).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(absl::StrCat("127.0.0.1:", port)),
                    HasSubstr("within 1.2s"), HasSubstr("--master_addr")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

TEST(TcpStoreTest, AServerThatIsNoStoreIsAnErrorInBoundedTime) {
  const BoundSocket silent = ListenOn("127.0.0.1", 0).value();
  const absl::Status status =
      ConnectTcpStore("127.0.0.1", silent.port, kShort).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("no answer")));
  close(silent.fd);
}

TEST(OpenStoreTest, KnowsWhoIsToBeNamedWhenItIsSilent) {
  auto served = ServeTcpStore("127.0.0.1", 0, kLong);
  ASSERT_TRUE(served.ok()) << served.status();
  const absl::Status late = absl::DeadlineExceededError("");
  const absl::Status lost = absl::UnavailableError("");
  Launch launch = TcpLaunch(1, 2, served->port);
  EXPECT_EQ(DescribeSilence(OpenStore(launch, kLong).value(), lost),
            "not heard of: rank 0 of the job, which serves the store: its "
            "connection is lost");
  launch.rendezvous.served_by_launcher = true;
  launch.rendezvous.key_prefix = "attempt_0/";
  EXPECT_EQ(DescribeSilence(OpenStore(launch, kLong).value(), late),
            "not heard of: the launcher, which serves the store: it does not "
            "answer");
  EXPECT_EQ(DescribeSilence(served->store, late),
            "the store, which rank 0 or the launcher serves, does not answer");
  EXPECT_EQ(DescribeSilence(NewHashStore(kLong), late),
            "the store does not answer");
}

TEST(OpenStoreTest, RankZeroServesAndTheOthersMayComeFirst) {
  const int port = FreePort();
  std::thread late([&] {
    auto store = OpenStore(TcpLaunch(1, 2, port), kLong);
    ASSERT_TRUE(store.ok()) << store.status();
    (*store)->set("from 1", std::string("here"));
  });
  auto store = OpenStore(TcpLaunch(0, 2, port), kLong);
  EXPECT_EQ(
      store.ok() ? (*store)->get_to_str("from 1") : store.status().ToString(),
      "here");
  late.join();
}

TEST(OpenStoreTest, WithALauncherEveryRankIsAClientAndKeysHaveAPrefix) {
  auto served = ServeTcpStore("127.0.0.1", 0, kLong);
  ASSERT_TRUE(served.ok()) << served.status();
  Launch launch = TcpLaunch(0, 1, served->port);
  launch.rendezvous.served_by_launcher = true;
  launch.rendezvous.key_prefix = "attempt_2";
  auto store = OpenStore(launch, kLong);
  ASSERT_TRUE(store.ok()) << store.status();
  (*store)->set("key", std::string("value"));
  EXPECT_EQ(served->store->get_to_str("attempt_2/key"), "value");
}

class FileStoreTest : public ::testing::Test {
 protected:
  Launch FileLaunch(int rank) {
    Launch launch;
    launch.rank = rank;
    launch.world_size = 2;
    launch.rendezvous.kind = Rendezvous::Kind::kFile;
    launch.rendezvous.path = path_;
    return launch;
  }

  const std::string path_ =
      ::testing::TempDir() + "/" +
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(FileStoreTest, RanksMeetInAFileThatGoesWithThem) {
  {
    auto a = OpenStore(FileLaunch(0), kLong);
    auto b = OpenStore(FileLaunch(1), kLong);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    (*a)->set("key", std::string("value"));
    EXPECT_EQ((*b)->get_to_str("key"), "value");
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(FileStoreTest, AStaleFileIsTold) {
  auto before = OpenStore(FileLaunch(0), kLong);
  ASSERT_TRUE(before.ok()) << before.status();
  const absl::Status again = OpenStore(FileLaunch(0), kLong).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(again.message(), AllOf(HasSubstr(path_), HasSubstr("Remove it")));
}

TEST_F(FileStoreTest, APathThatCannotBeIsNamed) {
  Launch launch = FileLaunch(0);
  launch.rendezvous.path = "/no/such/directory/file";
  const absl::Status status = OpenStore(launch, kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/directory"));
  launch.rendezvous.path = "";
  EXPECT_FALSE(OpenStore(launch, kLong).ok());
}

TEST(OpenStoreTest, OneRankNeedsNobody) {
  auto store = OpenStore(Launch{}, kLong);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->add("n", 1), 1);
  Launch two;
  two.world_size = 2;
  EXPECT_EQ(OpenStore(two, kLong).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
