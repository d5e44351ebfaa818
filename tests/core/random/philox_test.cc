#include <cstdint>
#include <set>

#include "core/random/random.h"
#include "gtest/gtest.h"

namespace tandem::philox_test {
namespace {

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
}  // namespace tandem::philox_test
