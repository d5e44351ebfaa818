#include "parallel/ddp/parameter_averaging.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
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

// As PyTorch's PeriodicModelAverager.
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

}  // namespace
}  // namespace tandem::parameter_averaging_test
