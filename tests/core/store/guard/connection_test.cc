#include "core/store/guard/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/store/guard/protocol.h"
#include "core/store/guard/session.h"
#include "core/testing/statuses.h"

namespace tandem::connection_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// What an opener of key "k" makes of these pieces; "DATA_LOSS" at the end where
// it ends with that.
std::vector<std::string> Open(const std::vector<std::string>& pieces) {
  FrameOpener opener("k");
  std::vector<std::string> messages;
  for (const std::string& piece : pieces) {
    opener.Append(piece);
    while (true) {
      const auto next = opener.Next();
      if (!next.ok()) {
        messages.push_back(absl::StatusCodeToString(next.status().code()));
        return messages;
      }
      if (!next->has_value()) break;
      messages.push_back(**next);
    }
  }
  return messages;
}

TEST(FramesTest, MessagesComeAsTheyWereSentHoweverCut) {
  FrameSealer sealer("k");
  std::string sent = sealer.Seal("");
  sent += sealer.Seal("one");
  sent += sealer.Seal(std::string(70000, 'x'));
  const auto whole = ElementsAre("", "one", std::string(70000, 'x'));
  EXPECT_THAT(Open({sent}), whole);
  std::vector<std::string> bytes;
  for (const char byte : sent) bytes.emplace_back(1, byte);
  EXPECT_THAT(Open(bytes), whole);
  EXPECT_THAT(Open({sent.substr(0, sent.size() - 1)}), ElementsAre("", "one"));
}

TEST(FramesTest, NoBitCanBeChanged) {
  const std::string sent = FrameSealer("k").Seal("message");
  for (size_t i = 4; i < sent.size(); ++i) {
    std::string other = sent;
    other[i] = static_cast<char>(other[i] ^ 0x40);
    EXPECT_THAT(Open({other}), ElementsAre("DATA_LOSS")) << i;
  }
}

TEST(FramesTest, NoMessageCanBeAddedRepeatedLeftOutOrExchanged) {
  FrameSealer sealer("k");
  const std::string a = sealer.Seal("a");
  const std::string b = sealer.Seal("b");
  EXPECT_THAT(Open({a, b}), ElementsAre("a", "b"));
  EXPECT_THAT(Open({a, a}), ElementsAre("a", "DATA_LOSS"));
  EXPECT_THAT(Open({b}), ElementsAre("DATA_LOSS"));
  EXPECT_THAT(Open({b, a}), ElementsAre("DATA_LOSS"));
  EXPECT_THAT(Open({FrameSealer("other").Seal("a")}), ElementsAre("DATA_LOSS"));
}

TEST(FramesTest, AGiganticLengthIsRefusedAtOnce) {
  EXPECT_THAT(Open({"\xff\xff\xff\xff"}), ElementsAre("DATA_LOSS"));
  // One more than 64 MiB; and 64 MiB, which may yet come.
  EXPECT_THAT(Open({std::string("\x01\x00\x00\x04", 4)}),
              ElementsAre("DATA_LOSS"));
  EXPECT_THAT(Open({std::string("\x00\x00\x00\x04", 4)}), ElementsAre());
}

const Nonces kNonces = {std::string(kNonceBytes, 's'),
                        std::string(kNonceBytes, 'c')};

TEST(HandshakeTest, AProofShowsTheSecret) {
  const std::string proof = ClientProof("secret", kNonces);
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(IsClientProof("secret", kNonces.server, proof));
  EXPECT_EQ(ServerProof("secret", kNonces).size(), kCodeBytes);
  EXPECT_EQ(Greeting(kNonces.server).size(), kGreetingBytes);
}

TEST(HandshakeTest, AnythingElseDoesNot) {
  const std::string proof = ClientProof("secret", kNonces);
  EXPECT_FALSE(IsClientProof("Secret", kNonces.server, proof));
  EXPECT_FALSE(IsClientProof("secret", std::string(kNonceBytes, 'S'), proof));
  EXPECT_FALSE(IsClientProof("secret", kNonces.server, ""));
  EXPECT_FALSE(IsClientProof("secret", kNonces.server, proof + "x"));
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string other = proof;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(IsClientProof("secret", kNonces.server, other)) << i;
  }
  // The server's own answer, sent back to it.
  EXPECT_FALSE(IsClientProof(
      "secret", kNonces.server,
      absl::StrCat(kNonces.client, ServerProof("secret", kNonces))));
}

TEST(HandshakeTest, KeysAreOfTheSideTheConnectionAndTheSecret) {
  const Nonces other = {kNonces.server, std::string(kNonceBytes, 'd')};
  std::set<std::string> keys;
  for (const SessionKeys& each :
       {DeriveKeys("secret", kNonces), DeriveKeys("secret", other),
        DeriveKeys("Secret", kNonces)}) {
    keys.insert(each.client);
    keys.insert(each.server);
  }
  EXPECT_EQ(keys.size(), 6);
  EXPECT_EQ(DeriveKeys("secret", kNonces).client,
            DeriveKeys("secret", kNonces).client);
}

// The client's side, against servers that are none.

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

absl::Status OpenServedBy(const std::string& text, bool closes) {
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
    EXPECT_THAT(
        OpenServedBy(text, /*closes=*/false),
        StatusIs(absl::StatusCode::kFailedPrecondition, "--job_secret_file"));
  }
}

// It waits for the client's first word, as one that is stopped seems to.
TEST(GuardedConnectionTest, WhoSaysNothingMayAskForNoSecret) {
  EXPECT_THAT(OpenServedBy("", /*closes=*/false),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "no greeting",
                       "--job_secret_file", "ulimit -n"));
}

TEST(GuardedConnectionTest, AServerThatDoesNotKnowTheSecretIsNotTalkedTo) {
  EXPECT_THAT(OpenServedBy(Greeting(std::string(kNonceBytes, 's')) +
                               std::string(kCodeBytes, '\0'),
                           /*closes=*/false),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "does not know the job's secret"));
}

TEST(GuardedConnectionTest, ALostConnectionMayBeTriedAgain) {
  const std::string greeting = Greeting(std::string(kNonceBytes, 's'));
  EXPECT_TRUE(absl::IsUnavailable(OpenServedBy("", /*closes=*/true)));
  EXPECT_TRUE(absl::IsUnavailable(OpenServedBy("tandem", /*closes=*/true)));
  EXPECT_TRUE(absl::IsUnavailable(OpenServedBy(greeting, /*closes=*/true)));
}

TEST(GuardedConnectionTest, ASilentServerIsAnErrorInTime) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      OpenServedBy(Greeting(std::string(kNonceBytes, 's')), /*closes=*/false)));
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
