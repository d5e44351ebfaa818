#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/utf8.h"
#include "core/digest/sha256.h"
#include "core/testing/statuses.h"
#include "datasets/tokenizers/byte_pair/encoding.h"
#include "datasets/tokenizers/byte_pair/nfc.h"
#include "datasets/tokenizers/byte_pair/pre_tokenizer.h"
#include "datasets/tokenizers/byte_pair/splitter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::byte_pair_test {
namespace {

using ::testing::ElementsAre;
using Tokens = std::vector<uint32_t>;

std::array<uint32_t, 256> Bytes() {
  std::array<uint32_t, 256> bytes;
  for (uint32_t i = 0; i < 256; ++i) bytes[i] = i;
  return bytes;
}

Tokens Encode(const std::vector<Merge>& merges, absl::string_view piece) {
  Tokens tokens;
  BytePairEncoding(Bytes(), merges).Encode(piece, &tokens);
  return tokens;
}

// The paper's algorithm as it reads: the whole piece for each merge.
Tokens EncodeSlowly(const std::vector<Merge>& merges, absl::string_view piece) {
  Tokens tokens;
  for (const char byte : piece) tokens.push_back(static_cast<uint8_t>(byte));
  for (bool found = true; found;) {
    found = false;
    for (const Merge& merge : merges) {
      for (size_t i = 0; i + 1 < tokens.size() && !found; ++i) {
        if (tokens[i] != merge.left || tokens[i + 1] != merge.right) continue;
        tokens[i] = merge.merged;
        tokens.erase(tokens.begin() + static_cast<int64_t>(i) + 1);
        found = true;
      }
      if (found) break;
    }
  }
  return tokens;
}

TEST(BytePairEncodingTest, TheEarliestMergeComesFirstThenTheLeftmost) {
  const std::vector<Merge> merges = {
      {'b', 'c', 256}, {'a', 'b', 257}, {'a', 256, 258}, {'a', 'a', 259}};
  EXPECT_THAT(Encode(merges, ""), ElementsAre());
  EXPECT_THAT(Encode(merges, "a"), ElementsAre('a'));
  EXPECT_THAT(Encode(merges, "abc"), ElementsAre(258));
  EXPECT_THAT(Encode(merges, "abab"), ElementsAre(257, 257));
  EXPECT_THAT(Encode(merges, "aaa"), ElementsAre(259, 'a'));
}

TEST(BytePairEncodingTest, RandomMergesAsOneByOne) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Merge> merges;
    std::vector<uint32_t> known = {'a', 'b', 'c'};
    for (uint32_t merged = 256; merged < 270; ++merged) {
      const uint32_t left = known[random() % known.size()];
      const uint32_t right = known[random() % known.size()];
      bool repeated = false;
      for (const Merge& merge : merges) {
        repeated |= merge.left == left && merge.right == right;
      }
      if (repeated) continue;
      merges.push_back({left, right, merged});
      known.push_back(merged);
    }
    std::string piece;
    for (auto i = random() % 30; i > 0; --i) {
      piece.push_back(static_cast<char>('a' + random() % 3));
    }
    EXPECT_EQ(Encode(merges, piece), EncodeSlowly(merges, piece)) << piece;
  }
}

// Expected values of NFC are those of Python's unicodedata (3.11, Unicode 14).
TEST(NfcTest, LettersAndTheirMarksAreOneCharacter) {
  EXPECT_EQ(Nfc(""), "");
  EXPECT_EQ(Nfc("plain text"), "plain text");
  EXPECT_EQ(Nfc("cafe\u0301s"), "caf\u00e9s");
  EXPECT_EQ(Nfc("caf\u00e9"), "caf\u00e9");
  // Marks below come before marks above, and are taken first.
  EXPECT_EQ(Nfc("a\u0302\u0323"), "\u1ead");
  EXPECT_EQ(Nfc("\u00e2\u0323"), "\u1ead");
  // A mark of the same class in between keeps the other one off.
  EXPECT_EQ(Nfc("a\u0300\u0301"), "\u00e0\u0301");
  EXPECT_EQ(Nfc("\u0301a"), "\u0301a");
}

TEST(NfcTest, SomeCharactersAreReplaced) {
  EXPECT_EQ(Nfc("\u212b"), "\u00c5");        // the Angstrom sign
  EXPECT_EQ(Nfc("\u2126m"), "\u03a9m");      // the Ohm sign
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c");  // never put together again
  EXPECT_EQ(Nfc("\U0002f800"), "\u4e3d");
}

TEST(NfcTest, HangulIsPutTogether) {
  EXPECT_EQ(Nfc("\u1112\u1161"), "\ud558");
  EXPECT_EQ(Nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\ud558\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\ud55c\u11ab"), "\ud55c\u11ab");
  EXPECT_EQ(Nfc("\u1161\u11ab"), "\u1161\u11ab");
}

std::string DigestOfAll(
    const std::function<std::string(const std::string&)>& text_of) {
  std::string text;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string character;
    AppendUtf8(code, &character);
    text += text_of(character) + "\n";
  }
  Sha256 hash;
  hash.Update(Nfc(text));
  return hash.HexDigest();
}

TEST(NfcTest, EveryCharacterAloneAndAmongOthers) {
  EXPECT_EQ(DigestOfAll([](const std::string& each) { return each; }),
            "9cc65524a9d8082bf10840c616cd199bd2ac12ee49a3381bd6fb7957711f342b");
  EXPECT_EQ(DigestOfAll([](const std::string& each) {
              return "a" + each + "\u0301\u0323";
            }),
            "42e218c870f9a28bde260a5185e8ba1de4cab693faed0efa365132272c5540e4");
  EXPECT_EQ(DigestOfAll([](const std::string& each) {
              return "\u1100" + each + "\u11a8";
            }),
            "3fa5f28822169b2af53e693f80f6d5d88f8526c203fa0d2838d25d003dd40aeb");
}

TEST(OnigurumaTest, WhatBothReadAlikeIsTaken) {
  for (const char* const pattern :
       {kGpt2Pattern,
        // Llama 3's, and of GPT-4o's and DeepSeek V3's.
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
        R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t)?)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)", "(?i)abc",
        "(?<=a)b(?>c)", "a++|b*+|c?+", "a{2,3}?|a{2,}|{|a{x}", "[]^$]",
        "\\{3}+", "[\\b]"}) {
    EXPECT_TRUE(CheckReadAlike(pattern).ok()) << CheckReadAlike(pattern);
  }
}

TEST(OnigurumaTest, WhatTheyReadOtherwiseIsRefusedByName) {
  for (const auto& [pattern, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"\\p{N}{1,3}+", "reads {1,3}+ otherwise"},
           {"a{3}+", "reads {3}+"},
           {"a{3}?", "reads {3}?"},
           {"a{,3}", "reads {,3}"},
           {"^a", "reads ^"},
           {"a|b$", "reads $"},
           {"\\bword", "reads \\b"},
           {"\\w+", "reads \\w"},
           {"[\\W]", "reads \\W"},
           {"\\pL", "reads \\p"},
           {"[[:punct:]]", "reads [ within brackets"},
           {"(?s).", "reads (?s"},
           {"a(?i)b|c", "reads (?i"},
           {"(?<name>a)", "reads (?<"}}) {
    const absl::Status status = CheckReadAlike(pattern);
    EXPECT_THAT(status,
                InvalidArgument(absl::StrCat("expression ", pattern), what));
  }
}

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
    EXPECT_THAT(splitter.status(), Says(pattern));
  }
}

}  // namespace
}  // namespace tandem::byte_pair_test
