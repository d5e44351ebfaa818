#include "core/random/draws.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/testing/device_types.h"

namespace tandem::draws_test {
namespace {

class DrawsTest : public DeviceTypeTest {
 protected:
  static void Seed(uint64_t seed) {
    for (const c10::Device device : {c10::Device(c10::kCPU), TestDevice()}) {
      at::Generator its = at::globalContext().defaultGenerator(device);
      its.set_current_seed(seed);
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

}  // namespace
}  // namespace tandem::draws_test
