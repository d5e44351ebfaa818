#include "parallel/ddp/outer_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/ddp/parameter_averaging.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem::outer_optimizer_test {
namespace {

at::TensorOptions On(at::ScalarType dtype) {
  return at::TensorOptions(TestDevice()).dtype(dtype);
}

// Weights that begin at 1: one of float, and one of double.
struct Weights {
  at::Tensor single = at::ones({}, On(at::kFloat)).requires_grad_(true);
  at::Tensor twice = at::ones({17}, On(at::kDouble)).requires_grad_(true);
  FlatBuffers buffers = MakeFlatBuffers({{"single", single}, {"twice", twice}});

  void Subtract(double difference) {
    at::NoGradGuard no_grad;
    single.sub_(difference);
    twice.sub_(difference);
  }
};

// After each step of a rank that takes `gradient(rank, step)` from its weights.
std::vector<double> Train(
    int ranks, int period, const OuterOptimizerOptions& options, int steps,
    const std::function<double(int rank, int step)>& gradient) {
  std::vector<double> weights;
  ExpectOk(RunDeviceRanks(ranks, [&](Communicator& world) -> absl::Status {
    Weights mine;
    OuterOptimizer outer(options, mine.buffers);
    TANDEM_ASSIGN_OR_RETURN(
        auto averager, PeriodicParameterAverager::Create({period, 0, options}));
    outer.Begin();
    for (int step = 0; step < steps; ++step) {
      mine.Subtract(gradient(world.rank(), step));
      const bool averages = averager.averages_now();
      TANDEM_RETURN_IF_ERROR(averager.AfterStep(mine.buffers, world));
      if (averages) outer.Step();
      EXPECT_NEAR(mine.single.item<float>(), mine.twice[5].item<double>(),
                  1e-4);
      if (world.rank() == 0) {
        weights.push_back(mine.twice[5].item<double>());
      }
    }
    return absl::OkStatus();
  }));
  return weights;
}

// Whoever keeps a copy of a parameter looks at its version.
TEST(OuterOptimizerTest, CountsWhatItWrites) {
  Weights mine;
  OuterOptimizer outer({1, 0}, mine.buffers);
  outer.Begin();
  const uint32_t before = mine.single._version();
  outer.Step();
  EXPECT_GT(mine.single._version(), before);
}

// torchft's recorded trajectory (test_fixtures of its DiLoCo): inner learning
// rate 1, gradient 2, outer SGD of learning rate 2 after each third step.
TEST(OuterOptimizerTest, FollowsTorchftsTrajectory) {
  for (const int ranks : {1, 2, 3, 7}) {
    const std::vector<double> weights =
        Train(ranks, 3, {2, 0}, 7, [](int, int) { return 2.0; });
    const std::vector<double> expected = {-1, -3, -11, -13, -15, -23, -25};
    ASSERT_EQ(weights.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(weights[i], expected[i], 1e-9) << i << " of " << ranks;
    }
  }
}

// Every round takes d = H * (mean of ranks' gradients) = 3 away:
//   b_1 = 3, b_2 = 0.5 * 3 + 3 = 4.5, b_3 = 5.25
//   x   = 1 - 0.7 * (3 + 0.5 * 3)    = -2.15
//         - 0.7 * (3 + 0.5 * 4.5)    = -5.825
//         - 0.7 * (3 + 0.5 * 5.25)   = -9.7625
TEST(OuterOptimizerTest, NesterovMomentumHasItsClosedForm) {
  for (const int ranks : {1, 2, 3, 5}) {
    const double middle = (ranks - 1) / 2.0;
    const std::vector<double> weights =
        Train(ranks, 2, {0.7, 0.5}, 6,
              [&](int rank, int) { return 1.5 + rank - middle; });
    ASSERT_EQ(weights.size(), 6u);
    EXPECT_NEAR(weights[1], -2.15, 1e-9);
    EXPECT_NEAR(weights[3], -5.825, 1e-9);
    EXPECT_NEAR(weights[5], -9.7625, 1e-9);
  }
}

// x - (x - y) is y but for the rounding of two differences.
TEST(OuterOptimizerTest, RateOneWithoutMomentumIsPlainAveraging) {
  for (const int ranks : {2, 3}) {
    const auto gradient = [](int rank, int step) {
      return 0.1 * rank + 0.01 * step;
    };
    const std::vector<double> weights = Train(ranks, 2, {1, 0}, 6, gradient);
    double mean = 1;
    for (int step = 0; step < 6; ++step) {
      mean -= 0.1 * (ranks - 1) / 2 + 0.01 * step;
      if (step % 2 == 1) {
        EXPECT_NEAR(weights[static_cast<size_t>(step)], mean, 1e-12) << step;
      }
    }
  }
}

NamedTensors Copies(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) {
    copies.emplace_back(name, tensor.clone());
  }
  return copies;
}

TEST(OuterOptimizerTest, GoesOnFromItsState) {
  Weights first;
  OuterOptimizer outer({0.7, 0.9}, first.buffers);
  EXPECT_TRUE(outer.State().empty()) << "nothing has begun";
  outer.Begin();
  first.Subtract(2);
  outer.Step();
  first.Subtract(0.25);  // in the midst of a round
  Weights second;
  OuterOptimizer resumed({0.7, 0.9}, second.buffers);
  const NamedTensors state = Copies(outer.State());
  EXPECT_EQ(state.size(), 4u);
  {
    at::NoGradGuard no_grad;
    second.single.copy_(first.single);
    second.twice.copy_(first.twice);
  }
  ASSERT_TRUE(resumed.CheckState(state).ok());
  ASSERT_TRUE(resumed.LoadState(state).ok());
  resumed.Begin();  // does not begin anew
  for (Weights* each : {&first, &second}) each->Subtract(0.5);
  outer.Step();
  resumed.Step();
  EXPECT_TRUE(first.twice.equal(second.twice));
  EXPECT_TRUE(first.single.equal(second.single));
}

TEST(OuterOptimizerTest, RefusesStateThatIsNotItsOwn) {
  Weights weights;
  OuterOptimizer outer({0.7, 0.9}, weights.buffers);
  const absl::Status part =
      outer.CheckState({{"single.outer_value", at::zeros({}, at::kFloat)}});
  EXPECT_TRUE(absl::IsInvalidArgument(part)) << part;
  EXPECT_TRUE(outer.CheckState({}).ok()) << "begins anew";
}

// It moves with the buffers' order.
TEST(OuterOptimizerTest, AnotherOrderChangesNothing) {
  NamedTensors parameters;
  for (int i = 0; i < 3; ++i) {
    parameters.emplace_back(
        "w" + std::to_string(i),
        at::full({i + 1}, i + 1.0, at::kFloat).requires_grad_(true));
  }
  FlatBuffers buffers = MakeFlatBuffers(parameters);
  OuterOptimizer outer({2, 0}, buffers);
  outer.Begin();
  buffers[0]->Reorder({2, 0, 1});
  {
    at::NoGradGuard no_grad;
    for (const auto& each : parameters) each.second.detach().sub_(1);
  }
  outer.Step();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(parameters[static_cast<size_t>(i)].second[i].item<float>(),
              i + 1.0 - 2);
  }
}

TEST(OuterOptimizerTest, OptionsOutOfRangeAreRefused) {
  for (const OuterOptimizerOptions& options :
       {OuterOptimizerOptions{0, 0}, OuterOptimizerOptions{-1, 0},
        OuterOptimizerOptions{1, 1}, OuterOptimizerOptions{1, -0.1}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        PeriodicParameterAverager::Create({3, 0, options}).status()));
  }
}

}  // namespace
}  // namespace tandem::outer_optimizer_test
