#include "parallel/ddp/parameter_averaging.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
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
#include "parallel/optim/flat_buffer.h"

namespace tandem::parameter_averaging_test {
namespace {

at::Tensor Leaf(const at::Tensor& values) {
  return values.to(TestDevice()).clone().requires_grad_(true);
}

absl::StatusOr<bool> AllAlike(const FlatBuffers& buffers, Communicator& world) {
  for (const auto& buffer : buffers) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                            world.AllGather(buffer->values()));
    for (const at::Tensor& each : all) {
      if (!each.equal(all[0])) return false;
    }
  }
  return true;
}

// A model y = w of one weight per element, pulled to `target` by plain SGD:
// w <- w - rate * (w - target).
struct Pulled {
  Pulled() : buffers(MakeFlatBuffers({{"a", a}, {"wide", wide}, {"b", b}})) {}

  void Step(double target, double rate) {
    at::NoGradGuard no_grad;
    for (const at::Tensor& w : {a, b, wide}) w.sub_((w - target) * rate);
  }

  at::Tensor a = Leaf(at::linspace(-1, 1, 17));
  at::Tensor b = Leaf(at::full({2, 3}, 5.));
  at::Tensor wide = Leaf(at::full({}, -2., at::kDouble));
  FlatBuffers buffers;
};

class ParameterAveragingTest : public DeviceTypeTest {};

// Rank r pulls to r; all begin at w. After H steps rank r has
//   q w + (1 - q) r  with q = (1 - rate)^H
// and the mean has the mean of the ranks for r. The averaging after the first
// step is one of them, since it is linear.
TEST_P(ParameterAveragingTest, LinearModelsFollowTheClosedForm) {
  const double rate = 0.25;
  const int period = 3, steps = 10;
  for (int n : {1, 2, 3, 7}) {
    const absl::Status status =
        RunDeviceRanks(n, [&](Communicator& world) -> absl::Status {
          Pulled model;
          const at::Tensor start = model.a.detach().clone();
          TANDEM_ASSIGN_OR_RETURN(auto averager,
                                  PeriodicParameterAverager::Create({period}));
          double q = 1;
          for (int step = 0; step < steps; ++step) {
            model.Step(world.rank(), rate);
            q *= 1 - rate;
            const bool averages = averager.averages_now();
            EXPECT_EQ(averages, step % period == 0);
            const auto version = model.a._version();
            TANDEM_RETURN_IF_ERROR(averager.AfterStep(model.buffers, world));
            // Whoever keeps copies of parameters hears of it.
            EXPECT_EQ(model.a._version() > version, averages);
            TANDEM_ASSIGN_OR_RETURN(bool alike, AllAlike(model.buffers, world));
            EXPECT_EQ(alike, averages || n == 1);
            if (!averages) continue;
            const double pull = (1 - q) * (n - 1) / 2;
            EXPECT_TRUE(at::allclose(model.a, start * q + pull, 1e-6, 1e-6));
            EXPECT_NEAR(model.b[1][2].item<float>(), 5 * q + pull, 1e-5);
            EXPECT_NEAR(model.wide.item<double>(), -2 * q + pull, 1e-12);
          }
          EXPECT_EQ(averager.step(), steps);
          return model.buffers[0]->CheckViews();
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

// Divided, then summed: a sum of two of these would overflow.
TEST_P(ParameterAveragingTest, DividesBeforeItSums) {
  for (int n : {2, 3}) {
    ExpectOk(RunDeviceRanks(n, [](Communicator& world) -> absl::Status {
      Pulled model;
      model.buffers[0]->values().fill_(3e38);
      TANDEM_RETURN_IF_ERROR(AverageParameters(model.buffers, world));
      EXPECT_TRUE(at::allclose(model.a.cpu(), at::full({17}, 3e38)));
      return absl::OkStatus();
    }));
  }
}

std::vector<bool> Averagings(int64_t period, int64_t warmup_steps, int steps) {
  std::vector<bool> averagings;
  ExpectOk(RunDeviceRanks(1, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto averager, PeriodicParameterAverager::Create(
                                               {period, warmup_steps}));
    for (int step = 0; step < steps; ++step) {
      EXPECT_EQ(averager.in_warmup(), step < warmup_steps);
      averagings.push_back(averager.averages_now());
      TANDEM_RETURN_IF_ERROR(averager.AfterStep({}, world));
    }
    return absl::OkStatus();
  }));
  return averagings;
}

// PyTorch's PeriodicModelAverager averages after the same steps.
TEST_P(ParameterAveragingTest, AveragesEachPeriodAfterTheWarmUp) {
  EXPECT_EQ(Averagings(1, 0, 3), (std::vector<bool>{1, 1, 1}));
  EXPECT_EQ(Averagings(4, 0, 9),
            (std::vector<bool>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(Averagings(3, 2, 9),
            (std::vector<bool>{0, 0, 1, 0, 0, 1, 0, 0, 1}));
}

TEST_P(ParameterAveragingTest, GoesOnAtTheStepThatIsSet) {
  auto averager = *PeriodicParameterAverager::Create({4, 2});
  averager.set_step(6);
  EXPECT_TRUE(averager.averages_now());
  averager.set_step(7);
  EXPECT_FALSE(averager.averages_now());
}

TEST_P(ParameterAveragingTest, NamesTheOptionThatIsWrong) {
  const auto period = PeriodicParameterAverager::Create({0}).status();
  EXPECT_THAT(period, InvalidArgument("period"));
  const auto warmup = PeriodicParameterAverager::Create({1, -1}).status();
  EXPECT_THAT(warmup, InvalidArgument("warmup_steps"));
}

TANDEM_ON_DEVICE_TYPES(ParameterAveragingTest);

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
}  // namespace tandem::parameter_averaging_test
