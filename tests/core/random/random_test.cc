#include "core/random/random.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/context/compute_context.h"
#include "core/random/default_generator.h"
#include "core/testing/device_types.h"
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

class DrawsTest : public DeviceTypeTest {
 protected:
  static void Seed(uint64_t seed) {
    for (const c10::Device device : {c10::Device(c10::kCPU), TestDevice()}) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      generator.set_current_seed(seed);
    }
  }
  static at::Tensor Draw() { return at::rand({8}, TestDevice()); }
};
TANDEM_ON_DEVICE_TYPES(DrawsTest);

TEST_P(DrawsTest, RecordingDrawsAsUsualAndReplayTheSameAgain) {
  Seed(3);
  const std::vector<at::Tensor> usual = {Draw(), Draw(), Draw(), Draw()};
  Seed(3);
  Draw();
  DrawRecord record;
  std::vector<at::Tensor> first, again;
  {
    const DrawRecord::Recording recording(&record);
    first = {Draw(), Draw()};
  }
  EXPECT_TRUE(at::equal(first[0], usual[1]));
  EXPECT_TRUE(at::equal(first[1], usual[2]));
  for (int time = 0; time < 2; ++time) {
    const DrawRecord::Replay replay(&record);
    again = {Draw(), Draw()};
    EXPECT_TRUE(at::equal(again[0], first[0]));
    EXPECT_TRUE(at::equal(again[1], first[1]));
  }
  EXPECT_TRUE(at::equal(Draw(), usual[3]));  // nobody has moved it
}

// The scope around draws on, whether the scope within has run once or twice.
TEST_P(DrawsTest, WithinAScopeWithASeed) {
  const auto draws = [](bool replays) {
    const DefaultGeneratorScope scope(11);
    std::vector<at::Tensor> all = {Draw()};
    DrawRecord record;
    {
      const DrawRecord::Recording recording(&record);
      all.push_back(Draw());
    }
    if (replays) {
      const DrawRecord::Replay replay(&record);
      EXPECT_TRUE(at::equal(Draw(), all.back()));
    }
    all.push_back(Draw());
    return all;
  };
  const auto with = draws(true), without = draws(false);
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_TRUE(at::equal(with[i], without[i]));
  }
}

TEST_P(DrawsTest, RecordsWithinRecordsAndReplays) {
  DrawRecord outer, inner, within_replay;
  at::Tensor a, b;
  {
    const DrawRecord::Recording recording(&outer);
    a = Draw();
    const DrawRecord::Recording within(&inner);
    b = Draw();
  }
  {
    const DrawRecord::Replay replay(&inner);
    EXPECT_TRUE(at::equal(Draw(), b));
  }
  const DrawRecord::Replay replay(&outer);
  EXPECT_TRUE(at::equal(Draw(), a));
  {
    const DrawRecord::Recording recording(&within_replay);
    EXPECT_TRUE(at::equal(Draw(), b));
  }
  const DrawRecord::Replay again(&within_replay);
  EXPECT_TRUE(at::equal(Draw(), b));
}

TEST_P(DrawsTest, ADeviceWhereNobodyDrewDrawsAsUsual) {
  DrawRecord record;
  { const DrawRecord::Recording recording(&record); }
  Seed(5);
  const at::Tensor usual = Draw();
  Seed(5);
  const DrawRecord::Replay replay(&record);
  EXPECT_TRUE(at::equal(Draw(), usual));
}

TEST(SampleScopeTest, ScopesNest) {
  EXPECT_FALSE(SampleScope::Current().has_value());
  {
    const SampleScope outer({7, 3, 16});
    {
      const SampleScope inner({7, 4, 0});
      EXPECT_EQ(SampleScope::Current()->step, 4);
    }
    ASSERT_TRUE(SampleScope::Current().has_value());
    EXPECT_EQ(SampleScope::Current()->seed, 7u);
    EXPECT_EQ(SampleScope::Current()->step, 3);
    EXPECT_EQ(SampleScope::Current()->first, 16);
  }
  EXPECT_FALSE(SampleScope::Current().has_value());
}

TEST(SampleScopeTest, IsOfOneThread) {
  const SampleScope scope({1, 2, 3});
  bool seen = true;
  std::thread([&] { seen = SampleScope::Current().has_value(); }).join();
  EXPECT_FALSE(seen);
}

}  // namespace
}  // namespace tandem::random_test
