// The client's side, against servers that are none.

#include "core/store/guard/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "core/store/guard/session.h"

namespace tandem::connection_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The client's end of a connection to somebody who says `text`, and then reads
// for good, or closes.
OwnedFd ServedBy(const std::string& text, OwnedFd* other) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(send(ends[1], text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  *other = OwnedFd(ends[1]);
  return OwnedFd(ends[0]);
}

absl::Status Open(const std::string& text, bool closes) {
  OwnedFd other;
  OwnedFd fd = ServedBy(text, &other);
  if (closes) other = OwnedFd();
  return GuardedConnection::Open(
             std::move(fd), "secret",
             std::chrono::steady_clock::now() + milliseconds(300))
      .status();
}

TEST(GuardedConnectionTest, WhoAsksForNoSecretIsNamed) {
  for (const char* text : {"x",
                           "HTTP/1.1 400 Bad Request, and more of it, "
                           "until it is as long as a greeting"}) {
    const absl::Status status = Open(text, /*closes=*/false);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("--job_secret_file"));
  }
}

// It waits for the client's first word, as one that is stopped seems to.
TEST(GuardedConnectionTest, WhoSaysNothingMayAskForNoSecret) {
  const absl::Status status = Open("", /*closes=*/false);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("no greeting"), HasSubstr("--job_secret_file"),
                    HasSubstr("ulimit -n")));
}

TEST(GuardedConnectionTest, AServerThatDoesNotKnowTheSecretIsNotTalkedTo) {
  const absl::Status status = Open(
      Greeting(std::string(kNonceBytes, 's')) + std::string(kCodeBytes, '\0'),
      /*closes=*/false);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("does not know the job's secret"));
}

TEST(GuardedConnectionTest, ALostConnectionMayBeTriedAgain) {
  const std::string greeting = Greeting(std::string(kNonceBytes, 's'));
  EXPECT_TRUE(absl::IsUnavailable(Open("", /*closes=*/true)));
  EXPECT_TRUE(absl::IsUnavailable(Open("tandem", /*closes=*/true)));
  EXPECT_TRUE(absl::IsUnavailable(Open(greeting, /*closes=*/true)));
}

TEST(GuardedConnectionTest, ASilentServerIsAnErrorInTime) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      Open(Greeting(std::string(kNonceBytes, 's')), /*closes=*/false)));
}

// A server that is stopped for a while (Ctrl-Z, a virtual machine that moves).
TEST(GuardedConnectionTest, AnAnswerThatComesLateIsNotTheNextOnes) {
  constexpr char kSecret[] = "secret";
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const OwnedFd server(ends[1]);
  Session session(kSecret, std::string(kNonceBytes, 's'));
  KeyValues table;
  // What has come is done, and answered.
  const auto serve = [&] {
    char bytes[4096];
    const ssize_t got = recv(server.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
      ASSERT_TRUE(session.Take({bytes, static_cast<size_t>(got)}, &table));
    }
    std::string& output = session.output();
    ASSERT_EQ(send(server.get(), output.data(), output.size(), 0),
              static_cast<ssize_t>(output.size()));
    output.clear();
  };
  const auto in = [](milliseconds time) {
    return std::chrono::steady_clock::now() + time;
  };
  std::atomic<bool> serves = true;
  std::thread thread([&] {
    while (serves) {
      serve();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const auto client = GuardedConnection::Open(OwnedFd(ends[0]), kSecret,
                                              in(milliseconds(30000)))
                          .value();
  serves = false;
  thread.join();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        client->Call({"add", "n", "1"}, in(milliseconds(10))).status()));
  }
  serves = true;
  thread = std::thread([&] {
    while (serves) {
      serve();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_THAT(client->Call({"add", "n", "10"}, in(milliseconds(30000))).value(),
              ElementsAre("13"));
  EXPECT_THAT(client->Call({"get", "n"}, in(milliseconds(30000))).value(),
              ElementsAre("13"));
  serves = false;
  thread.join();
}

TEST(AsksForSecretTest, ByItsFirstWords) {
  OwnedFd other;
  const OwnedFd asks = ServedBy(std::string(kMagic), &other);
  EXPECT_TRUE(AsksForSecret(asks.get(), milliseconds(1000)));
  const OwnedFd silent = ServedBy("", &other);
  EXPECT_FALSE(AsksForSecret(silent.get(), milliseconds(10)));
  const OwnedFd says = ServedBy("something else.....", &other);
  EXPECT_FALSE(AsksForSecret(says.get(), milliseconds(1000)));
}

}  // namespace
}  // namespace tandem::connection_test
