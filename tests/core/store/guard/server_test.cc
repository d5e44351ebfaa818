// A guarded server with strangers at its door, and members that go on.

#include "core/store/guard/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/store/guard/connection.h"
#include "core/store/guard/session.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSecret[] = "the secret of this job";

class GuardServerTest : public ::testing::Test {
 protected:
  GuardServerTest() {
    const BoundSocket socket = ListenOn("127.0.0.1", 0).value();
    port_ = socket.port;
    server_ = GuardServer::Start(OwnedFd(socket.fd), kSecret).value();
  }

  OwnedFd Connect() {
    return ConnectWhenServed("127.0.0.1", port_, seconds(30)).value();
  }
  absl::StatusOr<std::unique_ptr<GuardedConnection>> Join(
      const std::string& secret = kSecret) {
    return GuardedConnection::Open(Connect(), secret, Soon());
  }
  // A stranger that says `text`, and stays.
  OwnedFd Say(const std::string& text) {
    OwnedFd fd = Connect();
    EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
    return fd;
  }
  static std::chrono::steady_clock::time_point Soon() {
    return std::chrono::steady_clock::now() + seconds(30);
  }

  int port_;
  std::unique_ptr<GuardServer> server_;
};

TEST_F(GuardServerTest, MembersShareATable) {
  const auto one = Join().value();
  const auto two = Join().value();
  EXPECT_TRUE(one->Call({"set", "key", "value"}, Soon()).ok());
  EXPECT_THAT(two->Call({"get", "key"}, Soon()).value(), ElementsAre("value"));
  // More than a socket takes at once.
  const std::string much(8 << 20, 'x');
  EXPECT_TRUE(two->Call({"set", "much", much}, Soon()).ok());
  EXPECT_THAT(one->Call({"get", "much"}, Soon()).value(), ElementsAre(much));
}

TEST_F(GuardServerTest, AnErrorEndsNoConnection) {
  const auto one = Join().value();
  EXPECT_EQ(one->Call({"get", "none"}, Soon()).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_THAT(one->Call({"count"}, Soon()).value(), ElementsAre("0"));
}

TEST_F(GuardServerTest, AnotherSecretIsTurnedAwayAndCounted) {
  const auto member = Join().value();
  for (const char* secret : {"the secret of this joc", "another"}) {
    const absl::Status status = Join(secret).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("--job_secret_file"));
  }
  EXPECT_THAT(member->Call({"get", kStrangersKey}, Soon()).value()[0],
              HasSubstr("2 connections that did not show the job's secret were "
                        "turned away from the store, the last from 127.0.0.1"));
}

// Each kind, before and while a member comes and works.
TEST_F(GuardServerTest, StrangersHoldUpNobody) {
  const std::string c10d("\x00\xce\xf7\x85\x3c\x0d\x01\x02\x03\x04", 10);
  std::vector<OwnedFd> strangers;
  for (const std::string& text :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(63, 'x'), std::string(100000, '\xff'), c10d}) {
    strangers.push_back(Say(text));
  }
  const auto one = Join().value();
  for (int i = 0; i < 300; ++i) strangers.push_back(Say(""));
  const auto two = Join().value();
  EXPECT_THAT(one->Call({"add", "n", "1"}, Soon()).value(), ElementsAre("1"));
  EXPECT_THAT(two->Call({"add", "n", "1"}, Soon()).value(), ElementsAre("2"));
  // Beyond the most, the oldest had to go.
  char byte;
  EXPECT_EQ(recv(strangers[0].get(), &byte, 1, MSG_PEEK), 1);  // the greeting
  std::string greeting(100, ' ');
  recv(strangers[0].get(), &greeting[0], greeting.size(), 0);
  EXPECT_EQ(recv(strangers[0].get(), &byte, 1, 0), 0);
}

// The state after `ulimit -n`: strangers take all the descriptors that are
// left, which are this process's and so the server's.
TEST_F(GuardServerTest, WithoutDescriptorsMembersAreServed) {
  const auto one = Join().value();
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit limit = old;
  limit.rlim_cur = static_cast<rlim_t>(Connect().get()) + 16;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<OwnedFd> strangers;
  while (true) {
    auto fd = ConnectWhenServed("127.0.0.1", port_, milliseconds(300));
    if (!fd.ok()) break;
    strangers.push_back(*std::move(fd));
  }
  EXPECT_GE(strangers.size(), 8);
  EXPECT_TRUE(one->Call({"add", "n", "1"}, Soon()).ok());
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_TRUE(Join().ok());
}

TEST_F(GuardServerTest, ItsEndIsToldToMembers) {
  const auto one = Join().value();
  server_.reset();
  EXPECT_TRUE(absl::IsUnavailable(one->Call({"count"}, Soon()).status()));
  EXPECT_TRUE(absl::IsUnavailable(one->Call({"count"}, Soon()).status()));
}

}  // namespace
}  // namespace tandem
