#include "datasets/tokenizers/byte_pair/splitter.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::splitter_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<absl::string_view> Split(const std::string& pattern,
                                     absl::string_view text,
                                     SplitKeeps keeps = SplitKeeps::kAll) {
  const auto splitter = Splitter::Create(pattern, keeps);
  std::vector<absl::string_view> pieces;
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  EXPECT_TRUE(splitter->Split({text}, &pieces).ok());
  return pieces;
}

TEST(SplitterTest, GptsWords) {
  EXPECT_THAT(
      Split(kGpt2Pattern, "I'd  say: 12 cr\xC3\xA8mes!"),
      ElementsAre("I", "'d", " ", " say", ":", " 12", " cr\xC3\xA8mes", "!"));
  EXPECT_THAT(Split(kGpt2Pattern, ""), ElementsAre());
}

TEST(SplitterTest, WhatLiesBetweenMatchesIsKeptOrNot) {
  EXPECT_THAT(Split("[0-9]", "ab1c23"), ElementsAre("ab", "1", "c", "2", "3"));
  EXPECT_THAT(Split("[0-9]", "ab1c23d", SplitKeeps::kMatches),
              ElementsAre("1", "2", "3"));
  EXPECT_THAT(Split("[0-9]", "abc"), ElementsAre("abc"));
  EXPECT_THAT(Split("x*", "axxb"), ElementsAre("a", "xx", "b"));
}

TEST(SplitterTest, SomeExpressionsMatchNoCharacter) {
  for (const auto& [pattern, may] :
       std::vector<std::pair<std::string, bool>>{{"x*", true},
                                                 {"a|", true},
                                                 {"\\s+(?!\\S)", false},
                                                 {"a|b+", false}}) {
    const auto splitter = Splitter::Create(pattern, SplitKeeps::kAll);
    ASSERT_TRUE(splitter.ok()) << splitter.status();
    EXPECT_EQ(splitter->may_match_nothing(), may) << pattern;
  }
}

// U+180E was white space until Unicode 6.3, and is in PCRE2's own \s.
TEST(SplitterTest, WhiteSpaceIsUnicodes) {
  EXPECT_THAT(Split("\\s+", "a\xE1\xA0\x8E\xC2\x85z"),
              ElementsAre("a\xE1\xA0\x8E", "\xC2\x85", "z"));
  EXPECT_THAT(Split("[^\\s]+", "a\xE3\x80\x80 b"),
              ElementsAre("a", "\xE3\x80\x80 ", "b"));
}

TEST(SplitterTest, OtherMeaningsAreRefused) {
  for (const char* const pattern :
       {"[a&&b]", "\\h", "a\\Kb", "(*UTF)a", "(", "\\R"}) {
    const auto splitter = Splitter::Create(pattern, SplitKeeps::kAll);
    ASSERT_FALSE(splitter.ok()) << pattern;
    EXPECT_THAT(std::string(splitter.status().message()), HasSubstr(pattern));
  }
}

}  // namespace
}  // namespace tandem::splitter_test
