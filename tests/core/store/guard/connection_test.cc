// The client's side, against servers that are none.

#include "core/store/guard/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <utility>

namespace tandem::connection_test {
namespace {

using std::chrono::milliseconds;
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
  for (const char* text : {"", "x",
                           "HTTP/1.1 400 Bad Request, and more of it, "
                           "until it is as long as a greeting"}) {
    const absl::Status status = Open(text, /*closes=*/false);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("--job_secret_file"));
  }
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
