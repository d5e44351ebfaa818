#include "core/store/guard/key_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::key_values_test {
namespace {

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
}  // namespace tandem::key_values_test
