#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "models/transformer/sizes.h"
#include "models/transformer/training_memory.h"
#include "tools/bench/gpt/suite.h"

namespace tandem::formula_test {
namespace {

constexpr double kMib = 1 << 20;

// Eight samples.
Workload Gpt() {
  Workload workload = *WorkloadNamed("gpt_baby");
  workload.batch_size = 8;
  return workload;
}

Setting Of(const char* schedule, int chunks, int microbatches) {
  Setting setting;
  setting.schedule = schedule;
  setting.chunks = chunks;
  setting.microbatches = microbatches;
  return setting;
}

// Memory of gpt_baby's layers from `first` on, to `end`, holding so many
// microbatches.
double Stage(int64_t first, int64_t end, int64_t samples, int64_t held) {
  DeviceWork work;
  work.first_layer = first;
  work.end_layer = end;
  work.samples = samples;
  work.tokens = 256;
  work.microbatches_held = held;
  return static_cast<double>(MemoryOf(*GptSize("gpt_baby"), work).total()) /
         kMib;
}

TEST(FormulaMib, OfOneDeviceIsThatOfTheModel) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 1, 1}, Of("1f1b", 1, 1)),
                   Stage(0, 10, 8, 1));
  // A replica has half of the batch; one of its two microbatches is held.
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {2, 1, 1}, Of("1f1b", 1, 2)),
                   Stage(0, 10, 2, 1));
}

TEST(FormulaMib, OfRanksIsThatOfTheOneWithTheMost) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 2, 1}, Of("1f1b", 1, 4)),
                   std::max(Stage(0, 5, 2, 2), Stage(5, 10, 2, 1)));
}

TEST(FormulaMib, OfARankOfSeveralDevicesIsTheirSum) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 1, 2}, Of("1f1b", 1, 4)),
                   Stage(0, 5, 2, 2) + Stage(5, 10, 2, 1));
}

// In ZB-V each device has two of four stages, 3 + 3 + 2 + 2 layers, and holds
// four forwards of them.
TEST(FormulaMib, KnowsStagesOfOneDevice) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 2, 1}, Of("zb_v", 2, 4)),
                   std::max(Stage(0, 3, 2, 2) + Stage(8, 10, 2, 2),
                            Stage(3, 6, 2, 2) + Stage(6, 8, 2, 2)));
}

TEST(FormulaMib, KnowsPyTorchsZeroBubble) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 2, 1}, Of("zero_bubble", 1, 4)),
                   FormulaMib(Gpt(), {1, 2, 1}, Of("zb_h1", 1, 4)));
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 2, 1}, Of("zero_bubble", 2, 4)),
                   FormulaMib(Gpt(), {1, 2, 1}, Of("zb_v", 2, 4)));
}

TEST(FormulaMib, HasHalfTheActivationsInBf16) {
  Workload bf16 = Gpt();
  bf16.dtype = "bf16";
  DeviceWork work;
  work.samples = 8;
  work.tokens = 256;
  work.element_bytes = 2;
  EXPECT_DOUBLE_EQ(
      FormulaMib(bf16, {1, 1, 1}, Of("1f1b", 1, 1)),
      static_cast<double>(MemoryOf(*GptSize("gpt_baby"), work).total()) / kMib);
}

TEST(FormulaMib, IsNothingForOthers) {
  EXPECT_EQ(FormulaMib(*WorkloadNamed("resnet18"), {1, 1, 1}, Of("1f1b", 1, 1)),
            0);
  EXPECT_EQ(FormulaMib(Gpt(), {1, 2, 1}, Of("other", 1, 1)), 0);
}

}  // namespace
}  // namespace tandem::formula_test
