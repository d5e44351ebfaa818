#include "core/random/random.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace tandem::random_test {
namespace {

// The first of the reference implementation's vectors: key 00 01 ... 0f, input
// 00 01 ... of the length that is the index.
constexpr uint64_t kVectors[] = {
    0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a,
    0x85676696d7fb7e2d, 0xcf2794e0277187b7, 0x18765564cd99a68d,
    0xcbc9466e58fee3ce, 0xab0200f58b01d137, 0x93f5f5799a932462};

TEST(SipHashTest, GivesTheReferenceVectors) {
  std::string input;
  for (uint64_t expected : kVectors) {
    EXPECT_EQ(SipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, input), expected)
        << "length " << input.size();
    input.push_back(static_cast<char>(input.size()));
  }
}

// The example in the paper's appendix A.
TEST(SipHashTest, GivesThePapersExample) {
  std::string input;
  for (char i = 0; i < 15; ++i) input.push_back(i);
  EXPECT_EQ(SipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, input),
            0xa129ca6149be45e5);
}

TEST(SeedForTest, IsSipHashUnderTheSeed) {
  EXPECT_EQ(SeedFor(42, "layer1.0.conv1.weight"),
            SipHash(42, 0, "layer1.0.conv1.weight"));
}

// A change of these would change every model that is trained from a seed.
TEST(SeedForTest, StaysWhatItIs) {
  EXPECT_EQ(SeedFor(0, ""), 0x1e924b9d737700d7);
  EXPECT_EQ(SeedFor(0, "fc1.weight"), 0x89ae13fe7c12473d);
  EXPECT_EQ(SeedFor(1, "fc1.weight"), 0xf685fff7b133a09c);
}

// The generator keeps 32 bits, so these must differ in the lower half.
TEST(SeedForTest, DiffersBetweenNamesAndSeeds) {
  std::set<uint32_t> low_halves;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int layer = 0; layer < 100; ++layer) {
      low_halves.insert(
          static_cast<uint32_t>(SeedFor(seed, "h." + std::to_string(layer))));
    }
  }
  EXPECT_EQ(low_halves.size(), 1000u);
}

at::Tensor Draw(uint64_t seed, const std::string& name) {
  return at::empty({17}).normal_(0, 1, GeneratorFor(seed, name));
}

TEST(GeneratorForTest, DependsOnSeedAndNameAlone) {
  const at::Tensor first = Draw(7, "a");
  EXPECT_FALSE(Draw(7, "b").equal(first));
  EXPECT_FALSE(Draw(8, "a").equal(first));
  EXPECT_TRUE(Draw(7, "a").equal(first));
}

// The vectors for philox4x32 with 10 rounds of Random123, the authors' own
// implementation (its file kat_vectors).
TEST(PhiloxTest, HasItsAuthorsKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, EveryWordOfCounterAndKeyMatters) {
  std::set<PhiloxBlock> seen = {Philox({1, 1, 1, 1}, {1, 1})};
  for (int i = 0; i < 4; ++i) {
    PhiloxBlock counter = {1, 1, 1, 1};
    ++counter[i];
    seen.insert(Philox(counter, {1, 1}));
  }
  seen.insert(Philox({1, 1, 1, 1}, {2, 1}));
  seen.insert(Philox({1, 1, 1, 1}, {1, 2}));
  EXPECT_EQ(seen.size(), 7u);
}

}  // namespace
}  // namespace tandem::random_test
