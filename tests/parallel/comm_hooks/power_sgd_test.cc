// What PowerSgd computes; power_sgd_state_test.cc has what it keeps and
// refuses.

#include "parallel/comm_hooks/power_sgd.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd_bucket.h"
#include "tests/models/rounding.h"
#include "tests/parallel/comm_hooks/hook_driver.h"

namespace tandem::power_sgd_test {
namespace {

struct RankCase {
  int64_t gradient;
  int64_t approximation;
};

class PowerSgdTest : public DeviceTypeTest {};

// Also where more is asked for than the gradient has. In double: how much of
// float is lost depends on how well Q happens to see the gradient.
TEST_P(PowerSgdTest, IsExactForGradientsOfNoGreaterRank) {
  for (int n : {1, 2, 3, 7}) {
    for (const RankCase& c : {RankCase{1, 1}, {1, 3}, {2, 2}, {2, 3}, {3, 3}}) {
      const absl::Status status = RunPowerSgd(
          n, AtOnce(c.approximation),
          [&](Communicator& world, PowerSgd& power_sgd,
              HookDriver& driver) -> absl::Status {
            for (int step = 0; step < 3; ++step) {
              driver.Fill([&](const std::string& name, at::IntArrayRef sizes) {
                return LowRank(step, world.rank(), c.gradient, name, sizes);
              });
              TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
              TANDEM_RETURN_IF_ERROR(driver.CheckAlike(world));
              // Channels-last changes the order of columns, not the rank.
              for (const std::string& name : CompressedNames()) {
                TANDEM_RETURN_IF_ERROR(
                    Close(driver, name,
                          MeanLowRank(step, n, c.gradient, name,
                                      driver.gradient(name).sizes()),
                          1e-9));
              }
            }
            return absl::OkStatus();
          },
          at::kDouble);
      EXPECT_TRUE(status.ok())
          << n << " ranks, gradient of rank " << c.gradient << ": " << status;
    }
  }
}

TEST_P(PowerSgdTest, AveragesWhatIsNotCompressed) {
  for (int n : {1, 2, 3, 7}) {
    ExpectOk(RunPowerSgd(
        n, AtOnce(2),
        [n](Communicator& world, PowerSgd& power_sgd,
            HookDriver& driver) -> absl::Status {
          for (int step = 0; step < 3; ++step) {
            TANDEM_RETURN_IF_ERROR(
                ReduceNormal(step, world, power_sgd, driver));
            for (const auto& name :
                 {"bias", "small", "scalar", "plain", "row"}) {
              TANDEM_RETURN_IF_ERROR(Close(
                  driver, name,
                  MeanNormal(step, n, name, driver.gradient(name).sizes()),
                  1e-6));
            }
          }
          // And what is compressed is another matrix than the mean.
          EXPECT_FALSE(
              Close(driver, "weight", MeanNormal(2, n, "weight", {24, 17}), 0.1)
                  .ok());
          return absl::OkStatus();
        }));
  }
}

// What was sent and what still has to be add up to all gradients so far.
TEST_P(PowerSgdTest, ErrorFeedbackLosesNothing) {
  const int n = 3, steps = 8;
  ExpectOk(RunPowerSgd(
      n, AtOnce(1),
      [&](Communicator& world, PowerSgd& power_sgd,
          HookDriver& driver) -> absl::Status {
        for (const std::string& name : CompressedNames()) {
          const at::IntArrayRef sizes = driver.gradient(name).sizes();
          TANDEM_RETURN_IF_ERROR(
              power_sgd.LoadState((*PowerSgd::Create(AtOnce(1))).State()));
          at::Tensor sent = at::zeros(sizes, at::kDouble);
          at::Tensor wanted = at::zeros(sizes, at::kDouble);
          for (int step = 0; step < steps; ++step) {
            TANDEM_RETURN_IF_ERROR(
                ReduceNormal(step, world, power_sgd, driver));
            sent.add_(driver.gradient(name).cpu());
            wanted.add_(MeanNormal(step, n, name, sizes));
          }
          at::Tensor left = StateTensor(power_sgd.State(), name + ".error");
          EXPECT_GT(left.abs().max().item<float>(), 1);
          TANDEM_RETURN_IF_ERROR(world.AllReduceSum(left));
          EXPECT_TRUE(at::allclose(sent + left.cpu() / n, wanted, 1e-4, 1e-4))
              << name;
        }
        return absl::OkStatus();
      }));
}

// The same gradient is sent step after step.
double DistanceFromMean(const PowerSgdOptions& options, int steps) {
  double distance = 0;
  ExpectOk(RunPowerSgd(
      2, options,
      [&](Communicator& world, PowerSgd& power_sgd,
          HookDriver& driver) -> absl::Status {
        at::Tensor sum = at::zeros({24, 17}, at::kDouble);
        for (int step = 0; step < steps; ++step) {
          TANDEM_RETURN_IF_ERROR(ReduceNormal(0, world, power_sgd, driver));
          sum.add_(driver.gradient("weight").cpu());
        }
        if (world.rank() == 0) {
          distance = (sum / steps - MeanNormal(0, 2, "weight", {24, 17}))
                         .norm()
                         .item<double>();
        }
        return absl::OkStatus();
      }));
  return distance;
}

TEST_P(PowerSgdTest, ErrorFeedbackAndWarmStartServeTheirPurpose) {
  PowerSgdOptions with = AtOnce(2);
  EXPECT_LT(DistanceFromMean(with, 64), DistanceFromMean(with, 4) / 4);
  PowerSgdOptions without = with;
  without.use_error_feedback = false;
  EXPECT_GT(DistanceFromMean(without, 64), 4 * DistanceFromMean(with, 64));
  // A power iteration comes nearer to the best approximation than its start.
  EXPECT_LT(DistanceFromMean(without, 64), DistanceFromMean(without, 1));
}

TEST_P(PowerSgdTest, WithoutWarmStartEachStepProjectsAnew) {
  PowerSgdOptions options = AtOnce(1);
  options.warm_start = false;
  options.use_error_feedback = false;
  ExpectOk(RunPowerSgd(
      2, options,
      [](Communicator& world, PowerSgd& power_sgd,
         HookDriver& driver) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(ReduceNormal(0, world, power_sgd, driver));
        const at::Tensor first = driver.gradient("weight").clone();
        TANDEM_RETURN_IF_ERROR(ReduceNormal(0, world, power_sgd, driver));
        EXPECT_FALSE(at::allclose(first, driver.gradient("weight"), 0.1, 0.1));
        EXPECT_EQ(power_sgd.State().size(), 3u);  // counts alone
        return absl::OkStatus();
      }));
}

TEST_P(PowerSgdTest, SeedsGiveOtherProjections) {
  at::Tensor results[2];
  for (int seed : {0, 1}) {
    PowerSgdOptions options = AtOnce(1);
    options.random_seed = seed;
    ExpectOk(RunPowerSgd(
        1, options,
        [&](Communicator& world, PowerSgd& power_sgd, HookDriver& driver) {
          const absl::Status reduced =
              ReduceNormal(0, world, power_sgd, driver);
          results[seed] = driver.gradient("weight").clone();
          return reduced;
        }));
  }
  EXPECT_FALSE(at::allclose(results[0], results[1], 0.1, 0.1));
}

// A matrix of rank 17 asked for with rank 17 would not be smaller.
TEST_P(PowerSgdTest, CompressesOnlyWhatGetsSmallerByTheRateAskedFor) {
  PowerSgdOptions options = AtOnce(1);
  options.min_compression_rate = 24. * 17 / (24 + 17);
  ExpectOk(RunPowerSgd(1, options,
                       [](Communicator& world, PowerSgd& power_sgd,
                          HookDriver& driver) -> absl::Status {
                         TANDEM_RETURN_IF_ERROR(
                             ReduceNormal(0, world, power_sgd, driver));
                         const NamedTensors state = power_sgd.State();
                         EXPECT_FALSE(StateTensor(state, "weight.q").defined());
                         EXPECT_TRUE(StateTensor(state, "conv.q").defined());
                         return absl::OkStatus();
                       }));
}

// A job that stops after 3 of 6 steps, and another that goes on from its state.
// Errors and Qs move with their parameters.
TEST_P(PowerSgdTest, GradientsOfZeroStayZeroAndDoNoHarm) {
  ExpectOk(RunPowerSgd(
      2, AtOnce(2),
      [](Communicator& world, PowerSgd& power_sgd,
         HookDriver& driver) -> absl::Status {
        for (int step = 0; step < 3; ++step) {
          driver.Fill([](const std::string&, at::IntArrayRef sizes) {
            return at::zeros(sizes);
          });
          TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
          TANDEM_RETURN_IF_ERROR(
              Close(driver, "weight", at::zeros({24, 17}), 0));
        }
        driver.Fill([&](const std::string& name, at::IntArrayRef sizes) {
          return LowRank(0, world.rank(), 2, name, sizes);
        });
        TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
        return Close(driver, "weight", MeanLowRank(0, 2, 2, "weight", {24, 17}),
                     1e-4);
      }));
}

TEST_P(PowerSgdTest, ANaNShowsEverywhereAndIsGoneWithTheNextStep) {
  for (const double bad :
       {std::nan(""), std::numeric_limits<double>::infinity()}) {
    ExpectOk(RunPowerSgd(
        3, AtOnce(1),
        [bad](Communicator& world, PowerSgd& power_sgd,
              HookDriver& driver) -> absl::Status {
          TANDEM_RETURN_IF_ERROR(ReduceNormal(0, world, power_sgd, driver));
          FillNormal(1, world.rank(), &driver);
          if (world.rank() == 1) driver.gradient("weight")[3][5] = bad;
          TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
          EXPECT_TRUE(driver.gradient("weight").isnan().all().item<bool>());
          EXPECT_TRUE(driver.gradient("conv").isfinite().all().item<bool>());
          driver.Fill([&](const std::string& name, at::IntArrayRef sizes) {
            return LowRank(2, world.rank(), 1, name, sizes);
          });
          TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
          TANDEM_RETURN_IF_ERROR(driver.CheckAlike(world));
          return Close(driver, "weight",
                       MeanLowRank(2, 3, 1, "weight", {24, 17}), 1e-4);
        }));
  }
}

TEST_P(PowerSgdTest, WorksOnHalfPrecisionUnderAWrapper) {
  ExpectOk(RunPowerSgd(
      2, AtOnce(2),
      [](Communicator& world, PowerSgd& power_sgd,
         HookDriver& driver) -> absl::Status {
        const CommunicationHook hook = Fp16CompressWrapper(power_sgd.Hook());
        driver.Fill([&](const std::string& name, at::IntArrayRef sizes) {
          return LowRank(0, world.rank(), 2, name, sizes);
        });
        TANDEM_RETURN_IF_ERROR(driver.Reduce(hook, world));
        TANDEM_RETURN_IF_ERROR(driver.CheckAlike(world));
        EXPECT_EQ(StateTensor(power_sgd.State(), "weight.q").scalar_type(),
                  at::kHalf);
        return Close(driver, "weight", MeanLowRank(0, 2, 2, "weight", {24, 17}),
                     2e-2);
      }));
}

TANDEM_ON_DEVICE_TYPES(PowerSgdTest);

// A product of two columns of up to 64 numbers: 1 or 0, but for rounding.
double ProductTolerance() { return RoundingTolerance(at::kFloat, 64, 1); }

double DistanceFromIdentity(const at::Tensor& matrix) {
  const at::Tensor m = matrix.to(at::kCPU, at::kDouble);
  return (at::matmul(m.t(), m) - at::eye(m.size(1), at::kDouble))
      .abs()
      .max()
      .item<double>();
}

int64_t Dependent(const at::Tensor& matrix, double epsilon) {
  return Orthogonalize(matrix, epsilon).sum().item<int64_t>();
}

class OrthogonalizeTest : public DeviceTypeTest {};

TEST_P(OrthogonalizeTest, GivesAnOrthonormalBasisOfTheSameSpace) {
  for (int64_t rank : {1, 2, 5}) {
    const at::Tensor matrix = Normal(0, 0, "m", {37, rank}).to(TestDevice());
    const at::Tensor basis = matrix.clone();
    EXPECT_EQ(Dependent(basis, 0), 0);
    EXPECT_LT(DistanceFromIdentity(basis), ProductTolerance()) << rank;
    const at::Tensor back = at::matmul(basis, at::matmul(basis.t(), matrix));
    EXPECT_TRUE(at::allclose(back, matrix, 1e-5, 1e-5)) << rank;
  }
}

// Columns are as far from orthogonal as float can tell: plain Gram-Schmidt
// fails here.
TEST_P(OrthogonalizeTest, NearlyParallelColumnsBecomeOrthogonalToo) {
  const at::Tensor matrix =
      (Normal(0, 0, "m", {64, 1}) + Normal(0, 0, "noise", {64, 4}) * 1e-6)
          .to(TestDevice());
  EXPECT_EQ(Dependent(matrix, 0), 0);
  EXPECT_LT(DistanceFromIdentity(matrix), ProductTolerance());
}

TEST_P(OrthogonalizeTest, DependentColumnsBecomeZero) {
  const at::Tensor matrix = Normal(0, 0, "m", {11, 3}).to(TestDevice());
  matrix.select(1, 1).copy_(matrix.select(1, 0)).mul_(-2);
  EXPECT_EQ(Dependent(matrix, 0), 1);
  EXPECT_EQ(matrix.select(1, 1).abs().sum().item<float>(), 0);
  EXPECT_NEAR(matrix.select(1, 2).norm().item<float>(), 1, ProductTolerance());
  const at::Tensor zeros = at::zeros({5, 2}, TestDevice());
  EXPECT_EQ(Dependent(zeros, 0), 2);
  EXPECT_EQ(zeros.abs().sum().item<float>(), 0);
}

TEST_P(OrthogonalizeTest, EpsilonIsAddedToTheNorm) {
  const at::Tensor matrix = at::full({4, 1}, 2., TestDevice());  // of norm 4
  EXPECT_EQ(Dependent(matrix, 1), 0);
  EXPECT_TRUE(at::allclose(matrix.cpu(), at::full({4, 1}, 0.4)));
}

TEST_P(OrthogonalizeTest, KeepsNaNs) {
  const at::Tensor matrix = Normal(0, 0, "m", {4, 2}).to(TestDevice());
  matrix[2][0] = std::nan("");
  EXPECT_EQ(Dependent(matrix, 0), 0);
  EXPECT_TRUE(matrix.isnan().any(0).all().item<bool>());
}

TANDEM_ON_DEVICE_TYPES(OrthogonalizeTest);

}  // namespace
}  // namespace tandem::power_sgd_test
