#include "core/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/store/sockets.h"
#include "core/testing/statuses.h"
#include "tests/core/testing/listening_sockets.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kLong = seconds(30);
constexpr milliseconds kShort(1200);

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

// The state after `ulimit -n`: at some limit the server is there, and no client
// can be, which c10d's tries again and again.
TEST(TcpStoreTest, WithoutDescriptorsItIsAnErrorInBoundedTime) {
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  int refused = 0;
  bool is_served = false;
  for (int more = 0; more < 30 && !is_served; ++more) {
    // The lowest that is free: c10d keeps some of those that were in vain.
    const int next = dup(STDERR_FILENO);
    close(next);
    rlimit limit = old;
    limit.rlim_cur = static_cast<rlim_t>(next + more);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    is_served = ServeTcpStore("127.0.0.1", 0, kShort).ok();
    setrlimit(RLIMIT_NOFILE, &old);
    if (!is_served) ++refused;
  }
  EXPECT_TRUE(is_served);
  EXPECT_GT(refused, 3);
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
  EXPECT_THAT(ConnectTcpStore("127.0.0.1", port, kShort).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       absl::StrCat("127.0.0.1:", port), "within 1.2s",
                       "--master_addr"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

TEST(TcpStoreTest, AServerThatIsNoStoreIsAnErrorInBoundedTime) {
  const BoundSocket silent = ListenOn("127.0.0.1", 0).value();
  EXPECT_THAT(
      ConnectTcpStore("127.0.0.1", silent.port, kShort).status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, "127.0.0.1:", "no answer"));
  close(silent.fd);
}

// What is left of the time is all that it has, once somebody listens.
TEST(TcpStoreTest, AServerThatComesLateAndSaysNothingGetsNoMoreTime) {
  const int port = FreePort();
  BoundSocket late;
  std::thread listens([&] {
    std::this_thread::sleep_for(seconds(2));
    late = ListenOn("127.0.0.1", port).value();
  });
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status =
      ConnectTcpStore("127.0.0.1", port, seconds(3)).status();
  const auto time = std::chrono::steady_clock::now() - begin;
  listens.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.message(), HasSubstr("no answer"));
  EXPECT_LT(time, milliseconds(4500));
  close(late.fd);
}

}  // namespace
}  // namespace tandem
