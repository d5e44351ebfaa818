#include "core/store/guard/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/store/guard/key_values.h"
#include "core/store/guard/protocol.h"

namespace tandem::session_test {
namespace {

const Nonces kNonces = {std::string(kNonceBytes, 's'),
                        std::string(kNonceBytes, 'c')};

TEST(SessionTest, AMemberIsServed) {
  KeyValues table;
  Session session("secret", kNonces.server);
  EXPECT_EQ(session.output(), Greeting(kNonces.server));
  session.output().clear();
  EXPECT_FALSE(session.has_spoken());
  // The proof, and a request right behind it, byte by byte.
  const SessionKeys keys = DeriveKeys("secret", kNonces);
  FrameSealer sealer(keys.client);
  const std::string sent = ClientProof("secret", kNonces) +
                           sealer.Seal(EncodeRequest({"add", "n", "2"}));
  for (const char byte : sent) {
    ASSERT_TRUE(session.Take(std::string(1, byte), &table));
  }
  EXPECT_TRUE(session.is_member());
  EXPECT_EQ(table["n"], "2");
  ASSERT_TRUE(
      absl::StartsWith(session.output(), ServerProof("secret", kNonces)));
  FrameOpener opener(keys.server);
  opener.Append(session.output().substr(kCodeBytes));
  EXPECT_EQ(DecodeAnswer(opener.Next().value().value()).value()[0], "2");
}

TEST(SessionTest, AStrangerIsNotAndLeavesNothing) {
  KeyValues table;
  for (const std::string& proof :
       {ClientProof("another", kNonces), std::string(kProofBytes, '\0'),
        std::string(100000, '\xff')}) {
    Session session("secret", kNonces.server);
    session.output().clear();
    EXPECT_FALSE(session.Take(proof, &table));
    EXPECT_TRUE(session.has_spoken());
    EXPECT_FALSE(session.is_member());
    EXPECT_EQ(session.output(), kRefusal);
  }
  EXPECT_TRUE(table.empty());
}

TEST(SessionTest, HalfAProofIsWaitedFor) {
  KeyValues table;
  Session session("secret", kNonces.server);
  EXPECT_TRUE(session.Take(std::string(kProofBytes - 1, 'x'), &table));
  EXPECT_FALSE(session.is_member());
  EXPECT_TRUE(session.has_spoken());
}

// A member that asks for more than it reads does not fill the server's memory.
TEST(SessionTest, AnswersAreKeptUpToALimitAndTheRestFollows) {
  constexpr int kValues = 3;
  const std::string value(size_t{33} << 20, 'v');
  KeyValues table = {{"a", value}};
  Session session("secret", kNonces.server);
  const SessionKeys keys = DeriveKeys("secret", kNonces);
  FrameSealer sealer(keys.client);
  std::string sent = ClientProof("secret", kNonces);
  for (int i = 0; i < kValues; ++i) {
    sent += sealer.Seal(EncodeRequest({"get", "a"}));
  }
  session.output().clear();
  ASSERT_TRUE(session.Take(sent, &table));
  session.output().erase(0, kCodeBytes);
  FrameOpener opener(keys.server);
  int answers = 0;
  while (!session.output().empty()) {
    EXPECT_LT(session.output().size(), 2 * value.size() + 1000);
    opener.Append(session.output());
    session.output().clear();
    for (auto answer = opener.Next().value(); answer.has_value();
         answer = opener.Next().value()) {
      EXPECT_TRUE(DecodeAnswer(*answer).value()[0] == value);
      ++answers;
    }
    ASSERT_TRUE(session.Take("", &table));
  }
  EXPECT_EQ(answers, kValues);
  EXPECT_FALSE(session.has_more());
}

// The state after somebody else has got hold of the connection.
TEST(SessionTest, AMessageThatIsNotTheMembersEndsIt) {
  KeyValues table;
  Session session("secret", kNonces.server);
  ASSERT_TRUE(session.Take(ClientProof("secret", kNonces), &table));
  EXPECT_FALSE(session.Take(
      FrameSealer("another").Seal(EncodeRequest({"set", "a", "1"})), &table));
  EXPECT_TRUE(table.empty());
}

using std::chrono::seconds;

class VisitorsTest : public ::testing::Test {
 protected:
  int Come(const std::string& address, seconds at) {
    OwnedFd fd(open("/dev/null", O_RDONLY));
    const int raw = fd.get();
    connections_.Add(
        {std::move(fd), address, Session("secret", kNonces.server)},
        start_ + at);
    return raw;
  }
  void Say(int fd, const std::string& text) {
    connections_.Find(fd)->session.Take(text, &table_);
  }

  const ServerConnections::Clock::time_point start_{};
  ServerConnections connections_;
  KeyValues table_;
};

TEST_F(VisitorsTest, TheSlowGoAndMembersStay) {
  const int member = Come("member", seconds(0));
  const int silent = Come("silent", seconds(1));
  const int late = Come("late", seconds(2));
  Say(member, ClientProof("secret", kNonces));
  connections_.NoteMember(member);
  EXPECT_EQ(connections_.NextEnd(), start_ + seconds(11));
  connections_.RemoveSlow(start_ + seconds(11));
  EXPECT_NE(connections_.Find(member), nullptr);
  EXPECT_EQ(connections_.Find(silent), nullptr);
  EXPECT_NE(connections_.Find(late), nullptr);
  EXPECT_EQ(connections_.strangers(), 1);
  connections_.Remove(member);
  EXPECT_EQ(connections_.strangers(), 1);
}

TEST_F(VisitorsTest, WhoSaidNothingAndWentWasNoStranger) {
  connections_.Remove(Come("looked in", seconds(0)));
  EXPECT_EQ(connections_.strangers(), 0);
  const int half = Come("10.0.0.7:4242", seconds(0));
  Say(half, "half");
  connections_.Remove(half);
  EXPECT_EQ(connections_.DescribeRejected(),
            "1 connection that did not show the job's secret was turned away "
            "from the store, the last from 10.0.0.7:4242");
  connections_.Remove(half);  // once
  EXPECT_EQ(connections_.strangers(), 1);
}

TEST_F(VisitorsTest, BeyondTheMostTheOldestGoes) {
  const int first = Come("first", seconds(0));
  for (size_t i = 1; i < ServerConnections::kMostUnknown; ++i)
    Come("next", seconds(1));
  EXPECT_NE(connections_.Find(first), nullptr);
  Come("one more", seconds(2));
  EXPECT_EQ(connections_.Find(first), nullptr);
  EXPECT_EQ(connections_.strangers(), 1);
}

TEST_F(VisitorsTest, NobodyIsLeftToRemove) {
  EXPECT_FALSE(connections_.RemoveOldestUnknown());
  EXPECT_EQ(connections_.NextEnd(),
            ServerConnections::Clock::time_point::max());
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Fields = std::vector<std::string>;

class KeyValuesTest : public ::testing::Test {
 protected:
  Fields Ask(const Fields& request) {
    const auto answer = Try(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(Fields{});
  }
  absl::StatusOr<Fields> Try(const Fields& request) {
    return DecodeAnswer(AnswerRequest(EncodeRequest(request), &table_));
  }

  KeyValues table_;
};

TEST_F(KeyValuesTest, MeansWhatATcpStoreMeans) {
  EXPECT_THAT(Ask({"check", "a"}), ElementsAre("0"));
  EXPECT_THAT(Ask({"set", "a", "1", "b", ""}), IsEmpty());
  EXPECT_THAT(Ask({"get", "a", "b"}), ElementsAre("1", ""));
  EXPECT_THAT(Ask({"check", "a", "b"}), ElementsAre("1"));
  EXPECT_THAT(Ask({"check", "a", "c"}), ElementsAre("0"));
  EXPECT_THAT(Ask({"add", "a", "41"}), ElementsAre("42"));
  EXPECT_THAT(Ask({"add", "n", "-3"}), ElementsAre("-3"));
  EXPECT_THAT(Ask({"append", "t", "x"}), IsEmpty());
  EXPECT_THAT(Ask({"append", "t", "y"}), IsEmpty());
  EXPECT_THAT(Ask({"get", "t"}), ElementsAre("xy"));
  EXPECT_THAT(Ask({"count"}), ElementsAre("4"));
  EXPECT_THAT(Ask({"delete", "t"}), ElementsAre("1"));
  EXPECT_THAT(Ask({"delete", "t"}), ElementsAre("0"));
}

TEST_F(KeyValuesTest, ComparesBeforeItSets) {
  EXPECT_THAT(Ask({"compare", "a", "expected", "new"}),
              ElementsAre("expected"));
  EXPECT_THAT(Ask({"check", "a"}), ElementsAre("0"));
  EXPECT_THAT(Ask({"compare", "a", "", "1"}), ElementsAre("1"));
  EXPECT_THAT(Ask({"compare", "a", "", "2"}), ElementsAre("1"));
  EXPECT_THAT(Ask({"compare", "a", "1", "2"}), ElementsAre("2"));
}

TEST_F(KeyValuesTest, AnyBytesAreKeysAndValues) {
  const std::string odd("\0:3:\n\xff", 6);
  Ask({"set", odd, odd});
  EXPECT_THAT(Ask({"get", odd}), ElementsAre(odd));
}

TEST_F(KeyValuesTest, WhatIsNoRequestIsAnError) {
  Ask({"set", "text", "x", "most", "9223372036854775807"});
  for (const Fields& request :
       {Fields{}, Fields{"unknown"}, Fields{"set"}, Fields{"set", "a"},
        Fields{"set", "a", "1", "b"}, Fields{"get", "none"}, Fields{"add", "a"},
        Fields{"add", "a", "x"}, Fields{"add", "text", "1"},
        Fields{"add", "most", "1"}, Fields{"compare", "a", "b"},
        Fields{"count", "a"}, Fields{"delete"}}) {
    EXPECT_EQ(Try(request).status().code(), absl::StatusCode::kInternal)
        << EncodeRequest(request);
  }
  for (const char* text : {"", "3", "3:se", "-1:x", "99999999999999999999:x"}) {
    EXPECT_FALSE(DecodeAnswer(AnswerRequest(text, &table_)).ok()) << text;
    EXPECT_FALSE(DecodeAnswer(text).ok()) << text;
  }
  EXPECT_THAT(Ask({"count"}), ElementsAre("2"));
}

}  // namespace
}  // namespace tandem::session_test
