// tools/examples/ddp_basic, as a user runs it.

#include <ATen/Context.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/linear.h>

#include <set>
#include <string>
#include <vector>

#include "core/random/random.h"
#include "gtest/gtest.h"
#include "tests/e2e/examples/example_runs.h"

namespace tandem {
namespace {

// Large steps, so that the loss shows what they did.
constexpr double kLearningRate = 0.1;
constexpr int kSteps = 20;
constexpr int64_t kBatch = 20;

Flags LargeSteps() { return {"--learning_rate=0.1", "--steps=20"}; }

class DdpBasicTest : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};

TEST_P(DdpBasicTest, RanksBeginApartAndTakeRankZeros) {
  const ExampleOutput output = RunExample(kDdpBasic, ranks());
  std::set<std::string> made;
  for (int rank = 0; rank < ranks(); ++rank) {
    made.insert(RestOfLine(
        output.out, "rank " + std::to_string(rank) + " on cpu made weights  "));
  }
  EXPECT_EQ(made.size(), ranks());
  EXPECT_EQ(output.weights_before,
            RestOfLine(output.out, "rank 0 on cpu made weights  "));
}

struct Losses {
  double before;
  double after;
};

// One process with every rank's samples, in LibTorch alone.
Losses TrainWithoutTandem(int ranks) {
  at::manual_seed(0);
  torch::nn::Linear net1(10, 10), net2(10, 5);
  const at::Tensor inputs =
      at::randn({ranks * kBatch, 10}, GeneratorFor(0, "inputs"));
  const at::Tensor labels =
      at::randn({ranks * kBatch, 5}, GeneratorFor(0, "labels"));
  const auto loss = [&] {
    return at::mse_loss(net2(net1(inputs).relu()), labels);
  };
  Losses losses{loss().item<double>(), 0};
  for (int step = 0; step < kSteps; ++step) {
    for (torch::nn::Linear net : {net1, net2}) net->zero_grad();
    loss().backward();
    const at::NoGradGuard no_grad;
    for (torch::nn::Linear net : {net1, net2}) {
      for (at::Tensor& each : net->parameters()) {
        each.sub_(each.grad(), kLearningRate);
      }
    }
  }
  losses.after = loss().item<double>();
  return losses;
}

TEST_P(DdpBasicTest, TrainsAsLibTorchAloneWithEveryRanksSamples) {
  const ExampleOutput output = RunExample(kDdpBasic, ranks(), LargeSteps());
  const Losses alone = TrainWithoutTandem(ranks());
  // Gradients are summed in another order.
  EXPECT_NEAR(output.loss_before, alone.before, kLossTolerance);
  EXPECT_NEAR(output.loss_after, alone.after, kLossTolerance);
  EXPECT_LT(alone.after, alone.before - 0.01);
}

TEST_P(DdpBasicTest, SimulatedDevicesHaveTheCpusBits) {
  Flags simulated = LargeSteps();
  simulated.push_back("--device=sim");
  const ExampleOutput sim = RunExample(kDdpBasic, ranks(), simulated);
  const ExampleOutput cpu = RunExample(kDdpBasic, ranks(), LargeSteps());
  EXPECT_EQ(sim.weights_after, cpu.weights_after);
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::string number = std::to_string(rank);
    RestOfLine(sim.out, "rank " + number + " on sim:" + number + " made ");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpBasicTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace tandem
