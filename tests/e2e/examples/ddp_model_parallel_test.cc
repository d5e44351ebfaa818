// tools/examples/ddp_model_parallel, as a user runs it.

#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/examples/example_runs.h"

namespace tandem::ddp_model_parallel_test {
namespace {

// Large steps, so that the loss shows what they did.
Flags LargeSteps(const std::string& more) {
  return {"--learning_rate=0.1", "--steps=20", more};
}

class DdpModelParallelTest : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};

TEST_P(DdpModelParallelTest, EachRankOwnsTwoDevices) {
  const ExampleOutput output = RunExample(kDdpModelParallel, ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::string first = " sim:" + std::to_string(2 * rank);
    const std::string second = " sim:" + std::to_string(2 * rank + 1);
    EXPECT_EQ(RestOfLine(output.out, "rank " + std::to_string(rank) + " on" +
                                         first + " and" + second + ":"),
              " net1.weight" + first + " net1.bias" + first + " net2.weight" +
                  second + " net2.bias" + second);
  }
}

TEST_P(DdpModelParallelTest, SimulatedDevicesHaveTheCpusBits) {
  const ExampleOutput sim =
      RunExample(kDdpModelParallel, ranks(), LargeSteps("--device=sim"));
  const ExampleOutput cpu =
      RunExample(kDdpModelParallel, ranks(), LargeSteps("--device=cpu"));
  EXPECT_EQ(sim.weights_after, cpu.weights_after);
}

// The mean over ranks of each one's mean is the mean over all samples.
TEST_P(DdpModelParallelTest, TrainsAsOneProcessWithEveryRanksSamples) {
  const ExampleOutput many =
      RunExample(kDdpModelParallel, ranks(), LargeSteps("--batch_size=20"));
  const ExampleOutput alone =
      RunExample(kDdpModelParallel, 1,
                 LargeSteps("--batch_size=" + std::to_string(20 * ranks())));
  EXPECT_EQ(many.weights_before, alone.weights_before);
  // Gradients are summed in another order.
  EXPECT_NEAR(many.loss_before, alone.loss_before, kLossTolerance);
  EXPECT_NEAR(many.loss_after, alone.loss_after, kLossTolerance);
  EXPECT_LT(many.loss_after, many.loss_before - 0.01);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpModelParallelTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace tandem::ddp_model_parallel_test
