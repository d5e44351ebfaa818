#include "core/launch/open_store.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/launch/dist_url.h"
#include "core/store/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem::open_store_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DistUrlTest, ReadsEnvironment) {
  EXPECT_EQ(ParseDistUrl("env://")->kind, DistUrl::Kind::kEnvironment);
}

TEST(DistUrlTest, ReadsTcp) {
  const auto url = ParseDistUrl("tcp://node-1.site:29501");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->kind, DistUrl::Kind::kTcp);
  EXPECT_EQ(url->host, "node-1.site");
  EXPECT_EQ(url->port, 29501);
}

TEST(DistUrlTest, ReadsIpv6) {
  const auto url = ParseDistUrl("tcp://[fe80::1]:0");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "fe80::1");
  EXPECT_EQ(url->port, 0);
}

TEST(DistUrlTest, ReadsFile) {
  const auto url = ParseDistUrl("file:///tmp/a b");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->kind, DistUrl::Kind::kFile);
  EXPECT_EQ(url->path, "/tmp/a b");
}

TEST(DistUrlTest, ErrorsSayWhatWasGivenAndWhatIsExpected) {
  for (const char* url :
       {"", "env", "env://x", "tcp://", "tcp://host", "tcp://:1",
        "tcp://host:x", "tcp://host:65536", "tcp://[::1:5", "tcp://host:-1",
        "file://relative", "file:///", "http://host:1",
        "tcp://host:1?rank=0&world_size=2"}) {
    const absl::Status error = ParseDistUrl(url).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(error.message(), HasSubstr(url));
    EXPECT_THAT(error.message(), HasSubstr("expected env://, tcp://HOST:PORT"));
  }
}

constexpr milliseconds kLong = seconds(30);

Launch TcpLaunch(int rank, int world_size, int port) {
  Launch launch;
  launch.rank = rank;
  launch.world_size = world_size;
  launch.rendezvous.kind = Rendezvous::Kind::kTcp;
  launch.rendezvous.host = "127.0.0.1";
  launch.rendezvous.port = port;
  return launch;
}

TEST(OpenStoreTest, KnowsWhoIsToBeNamedWhenItIsSilent) {
  auto served = ServeTcpStore("127.0.0.1", 0, kLong);
  ASSERT_TRUE(served.ok()) << served.status();
  const absl::Status late = absl::DeadlineExceededError("");
  const absl::Status lost = absl::UnavailableError("");
  Launch launch = TcpLaunch(1, 2, served->port);
  const std::string where = " (127.0.0.1:" + std::to_string(served->port) + ")";
  EXPECT_EQ(DescribeSilence(OpenStore(launch, kLong).value(), lost),
            "not heard of: rank 0 of the job, which serves the store: its "
            "connection is lost" +
                where);
  launch.rendezvous.served_by_launcher = true;
  launch.rendezvous.key_prefix = "attempt_0/";
  EXPECT_EQ(DescribeSilence(OpenStore(launch, kLong).value(), late),
            "not heard of: the launcher, which serves the store: it does not "
            "answer" +
                where);
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

TEST_F(FileStoreTest, NobodyElseMayReadTheFileOrPutOneThere) {
  const auto mode = [](const std::string& path) {
    struct stat found {};
    EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777;
  };
  const auto refusal = [&] { return OpenStore(FileLaunch(0), kLong).status(); };
  {
    const auto store = OpenStore(FileLaunch(0), kLong);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(mode(path_), 0600u);
  }
  std::filesystem::remove(path_);
  std::ofstream(path_).close();
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  absl::Status status = refusal();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(),
              HasSubstr(path_ + " is open to others (mode 0644): remove it"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/passwd", path_);
  status = refusal();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  std::filesystem::remove(path_);
}

TEST_F(FileStoreTest, AFolderInWhichEverybodyMayWriteIsRefused) {
  const std::string folder = MakeTestDir();
  Launch launch = FileLaunch(0);
  launch.rendezvous.path = folder + "/store";
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  const absl::Status status = OpenStore(launch, kLong).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("everybody may write in " + folder));
  // The mode of /tmp.
  ASSERT_EQ(chmod(folder.c_str(), 01777), 0);
  const auto store = OpenStore(launch, kLong);
  EXPECT_TRUE(store.ok()) << store.status();
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
}  // namespace tandem::open_store_test
