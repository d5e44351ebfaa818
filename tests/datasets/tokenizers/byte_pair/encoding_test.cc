#include "datasets/tokenizers/byte_pair/encoding.h"

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::encoding_test {
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

}  // namespace
}  // namespace tandem::encoding_test
