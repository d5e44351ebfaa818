// What PowerSgd keeps from step to step, counts and refuses.

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "tests/parallel/comm_hooks/hook_driver.h"

namespace tandem::power_sgd_state_test {
namespace {

class PowerSgdStateTest : public DeviceTypeTest {};

TEST_P(PowerSgdStateTest, AveragesUncompressedBeforeItsStart) {
  PowerSgdOptions options = AtOnce(1);
  options.start_power_sgd_iter = 2;
  ExpectOk(RunPowerSgd(
      3, options,
      [](Communicator& world, PowerSgd& power_sgd,
         HookDriver& driver) -> absl::Status {
        for (int step = 0; step < 3; ++step) {
          TANDEM_RETURN_IF_ERROR(ReduceNormal(step, world, power_sgd, driver));
          EXPECT_EQ(power_sgd.Stats().iter, step + 1);
          EXPECT_EQ(Close(driver, "weight",
                          MeanNormal(step, 3, "weight", {24, 17}), 1e-6)
                        .ok(),
                    step < 2);
          EXPECT_EQ(power_sgd.Stats().compression_rate() > 0, step == 2);
        }
        return absl::OkStatus();
      }));
}

TEST_P(PowerSgdStateTest, CountsWhatItSends) {
  ExpectOk(RunPowerSgd(
      1, AtOnce(2),
      [](Communicator& world, PowerSgd& power_sgd,
         HookDriver& driver) -> absl::Status {
        for (int step = 0; step < 2; ++step) {
          TANDEM_RETURN_IF_ERROR(ReduceNormal(step, world, power_sgd, driver));
        }
        // weight, conv, turned; then bias, small, scalar, plain, row.
        const int64_t low_rank = 24 * 17 + 16 * 45 + 19 * 23;
        const int64_t thin = 2 * (24 + 17 + 16 + 45 + 19 + 23);
        const int64_t others = 24 + 12 + 1 + 13 + 50;
        const CompressionStats stats = power_sgd.Stats();
        EXPECT_EQ(stats.iter, 2);
        EXPECT_EQ(stats.numel_before_compression, 2 * (low_rank + others));
        EXPECT_EQ(stats.numel_after_compression, 2 * (thin + others));
        EXPECT_DOUBLE_EQ(
            stats.compression_rate(),
            static_cast<double>(low_rank + others) / (thin + others));
        return absl::OkStatus();
      }));
}

TEST_P(PowerSgdStateTest, GoesOnFromASavedState) {
  PowerSgdOptions options = AtOnce(2);
  options.start_power_sgd_iter = 1;
  ExpectOk(RunPowerSgd(
      2, options,
      [&](Communicator& world, PowerSgd& whole,
          HookDriver& driver) -> absl::Status {
        NamedTensors saved;
        for (int step = 0; step < 6; ++step) {
          if (step == 3) saved = whole.State();
          TANDEM_RETURN_IF_ERROR(ReduceNormal(step, world, whole, driver));
        }
        EXPECT_EQ(StateTensor(saved, "conv.q").sizes(),
                  at::IntArrayRef({45, 2}));
        EXPECT_EQ(StateTensor(saved, "conv.error").sizes(),
                  at::IntArrayRef({16, 5, 3, 3}));
        TANDEM_ASSIGN_OR_RETURN(PowerSgd resumed, PowerSgd::Create(options));
        TANDEM_RETURN_IF_ERROR(resumed.LoadState(saved));
        HookDriver second(PowerSgdBuckets());
        for (int step = 3; step < 6; ++step) {
          TANDEM_RETURN_IF_ERROR(ReduceNormal(step, world, resumed, second));
        }
        for (size_t b = 0; b < PowerSgdBuckets().size(); ++b) {
          EXPECT_TRUE(
              second.buckets()[b].buffer.equal(driver.buckets()[b].buffer));
        }
        const NamedTensors ends = resumed.State();
        for (const auto& [name, tensor] : whole.State()) {
          EXPECT_TRUE(StateTensor(ends, name).equal(tensor)) << name;
        }
        return absl::OkStatus();
      }));
}

TEST_P(PowerSgdStateTest, SurvivesTheRebuildingOfBuckets) {
  ExpectOk(RunPowerSgd(
      2, AtOnce(1),
      [](Communicator& world, PowerSgd& one,
         HookDriver& driver) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(PowerSgd other, PowerSgd::Create(AtOnce(1)));
        HookDriver rebuilt({{{"scalar", {}}, {"weight", {24, 17}}},
                            {{"bias", {24}},
                             {"turned", {19, 23}, {1, 19}},
                             {"conv", {16, 5, 3, 3}, {45, 1, 15, 5}}}});
        for (int step = 0; step < 4; ++step) {
          TANDEM_RETURN_IF_ERROR(ReduceNormal(step, world, one, driver));
          TANDEM_RETURN_IF_ERROR(
              ReduceNormal(step, world, other, step < 2 ? driver : rebuilt));
          // `driver` holds what `other` left in the first steps.
        }
        for (const std::string& name : CompressedNames()) {
          TANDEM_RETURN_IF_ERROR(
              Close(rebuilt, name, driver.gradient(name), 1e-5));
        }
        return absl::OkStatus();
      }));
}

std::string CreateError(const std::function<void(PowerSgdOptions&)>& change) {
  PowerSgdOptions options;
  change(options);
  const auto made = PowerSgd::Create(options);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(made.status().message());
}

TEST_P(PowerSgdStateTest, NamesTheOptionThatIsWrong) {
  EXPECT_EQ(CreateError([](auto& o) { o.matrix_approximation_rank = 0; }),
            "matrix_approximation_rank must be at least 1, got 0");
  EXPECT_EQ(CreateError([](auto& o) { o.start_power_sgd_iter = -1; }),
            "start_power_sgd_iter must not be negative, got -1");
  EXPECT_EQ(CreateError([](auto& o) { o.min_compression_rate = 0; }),
            "min_compression_rate must be greater than 0, got 0");
  EXPECT_PRED2([](auto a, auto b) { return absl::StrContains(a, b); },
               CreateError([](auto& o) { o.orthogonalization_epsilon = -1; }),
               "orthogonalization_epsilon");
}

TEST_P(PowerSgdStateTest, RefusesAStateThatIsNotOne) {
  PowerSgd power_sgd = *PowerSgd::Create(AtOnce(1));
  const NamedTensors empty = power_sgd.State();
  NamedTensors short_of_one(empty.begin() + 1, empty.end());
  const absl::Status missing = power_sgd.LoadState(short_of_one);
  EXPECT_EQ(missing.message(), "PowerSGD state: power_sgd.iter is missing");
  for (const NamedTensors& more :
       {NamedTensors{{"weight.momentum_buffer", at::zeros({3})}},
        NamedTensors{{"weight.q", at::zeros({3})}},
        NamedTensors{{"weight.error", at::zeros({3}, at::kLong)}}}) {
    NamedTensors state = empty;
    state.insert(state.end(), more.begin(), more.end());
    const absl::Status status = power_sgd.LoadState(state);
    EXPECT_THAT(status, InvalidArgument(more[0].first));
  }
  NamedTensors negative = empty;
  negative[0].second = at::scalar_tensor(-1, at::kLong);
  EXPECT_EQ(power_sgd.LoadState(negative).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(PowerSgdStateTest, NamesTheParameterWhoseStateDoesNotFit) {
  const absl::Status status =
      RunPowerSgd(1, AtOnce(1),
                  [](Communicator& world, PowerSgd& power_sgd,
                     HookDriver& driver) -> absl::Status {
                    NamedTensors state = power_sgd.State();
                    state.emplace_back("conv.q", at::zeros({45, 2}));
                    TANDEM_RETURN_IF_ERROR(power_sgd.LoadState(state));
                    return ReduceNormal(0, world, power_sgd, driver);
                  });
  EXPECT_THAT(status,
              InvalidArgument("conv.q: expected Float [45, 1], got Float "
                              "[45, 2]"));
}

TANDEM_ON_DEVICE_TYPES(PowerSgdStateTest);

}  // namespace
}  // namespace tandem::power_sgd_state_test
