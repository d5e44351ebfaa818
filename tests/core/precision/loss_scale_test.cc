#include "core/precision/loss_scale.h"

#include <ATen/Tensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/testing/device_types.h"
#include "gtest/gtest.h"

namespace tandem::loss_scale_test {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

LossScale Make(const GradScalerOptions& options = {}) {
  return LossScale::Create(options).value();
}

GradScalerOptions Quick(double init_scale, int64_t interval) {
  GradScalerOptions options;
  options.init_scale = init_scale;
  options.growth_interval = interval;
  return options;
}

void UpdateTimes(LossScale& scale, int times, bool found_inf) {
  for (int i = 0; i < times; ++i) ASSERT_TRUE(scale.Update(found_inf).ok());
}

TEST(LossScaleTest, BeginsAndGrowsAsPyTorchsDoes) {
  LossScale scale = Make();
  EXPECT_EQ(scale.scale(), 65536);
  UpdateTimes(scale, 1999, false);
  EXPECT_EQ(scale.scale(), 65536);
  EXPECT_EQ(scale.growth_tracker(), 1999);
  UpdateTimes(scale, 1, false);
  EXPECT_EQ(scale.scale(), 131072);
  EXPECT_EQ(scale.growth_tracker(), 0);
}

// After g good steps in a row it has grown g / interval times; each bad one
// halves it and makes the count begin anew.
TEST(LossScaleTest, HasAClosedForm) {
  for (const int interval : {1, 2, 5}) {
    LossScale scale = Make(Quick(1024, interval));
    double expected = 1024;
    for (const int good : {0, 1, 4, 5, 11, 0, 0, 7}) {
      UpdateTimes(scale, good, false);
      expected *= std::pow(2, good / interval);
      EXPECT_EQ(scale.scale(), expected);
      EXPECT_EQ(scale.growth_tracker(), good % interval);
      UpdateTimes(scale, 1, true);
      expected /= 2;
      EXPECT_EQ(scale.scale(), expected);
      EXPECT_EQ(scale.growth_tracker(), 0);
    }
    EXPECT_EQ(scale.skipped_steps(), 8);
  }
}

// LibTorch's own step of the scale, with factors that are no powers of two.
TEST(LossScaleTest, HasTheBitsOfLibTorchs) {
  GradScalerOptions options;
  options.init_scale = 1000.1;
  options.growth_factor = 1.37;
  options.backoff_factor = 0.73;
  options.growth_interval = 3;
  LossScale scale = Make(options);
  at::Tensor libtorch_scale = at::full({}, options.init_scale, at::kFloat);
  at::Tensor tracker = at::zeros({}, at::kInt);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const bool found = random() % 5 == 0;
    ASSERT_TRUE(scale.Update(found).ok());
    at::_amp_update_scale_(
        libtorch_scale, tracker, at::full({}, found ? 1.0 : 0.0, at::kFloat),
        options.growth_factor, options.backoff_factor, options.growth_interval);
    ASSERT_EQ(scale.scale(), libtorch_scale.item<float>()) << i;
    ASSERT_EQ(scale.growth_tracker(), tracker.item<int>()) << i;
    ASSERT_EQ(scale.inverse(), libtorch_scale.to(at::kDouble)
                                   .reciprocal()
                                   .to(at::kFloat)
                                   .item<float>());
  }
}

TEST(LossScaleTest, DoesNotGrowBeyondFloats) {
  LossScale scale = Make(Quick(std::ldexp(1, 126), 1));
  UpdateTimes(scale, 5, false);
  EXPECT_EQ(scale.scale(), std::ldexp(1, 127));
}

TEST(LossScaleTest, TellsOfSkippedSteps) {
  LossScale scale = Make();
  EXPECT_FALSE(scale.last_was_skipped());
  UpdateTimes(scale, 3, true);
  EXPECT_TRUE(scale.last_was_skipped());
  UpdateTimes(scale, 1, false);
  EXPECT_FALSE(scale.last_was_skipped());
  EXPECT_EQ(scale.skipped_steps(), 3);
}

TEST(LossScaleTest, DoesNotFallForever) {
  LossScale scale = Make();
  UpdateTimes(scale, 30, true);  // from 2^16 to 2^-14
  EXPECT_EQ(scale.scale(), kLeastLossScale);
  const absl::Status status = scale.Update(true);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the gradients of the last 31 steps were not finite"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("try a smaller"));
}

TEST(LossScaleTest, IsOneWhenOff) {
  GradScalerOptions options;
  options.enabled = false;
  LossScale scale = Make(options);
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_EQ(scale.inverse(), 1);
  UpdateTimes(scale, 100, true);
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_TRUE(scale.State().empty());
  EXPECT_TRUE(scale.LoadState({}).ok());
}

TEST(LossScaleTest, StateHasPyTorchsKeysAndGoesOnToTheBit) {
  LossScale scale = Make(Quick(1.1, 3));
  UpdateTimes(scale, 4, false);
  const std::map<std::string, double> state = scale.State();
  const std::map<std::string, double> expected = {
      {"scale", static_cast<float>(2 * static_cast<double>(1.1F))},
      {"growth_factor", 2},
      {"backoff_factor", 0.5},
      {"growth_interval", 3},
      {"_growth_tracker", 1}};
  EXPECT_EQ(state, expected);
  LossScale other = Make();
  ASSERT_TRUE(other.LoadState(state).ok());
  EXPECT_EQ(other.State(), state);
  UpdateTimes(scale, 2, false);
  UpdateTimes(other, 2, false);
  EXPECT_EQ(other.State(), scale.State());
}

TEST(LossScaleTest, RefusesOtherStates) {
  const auto refusal = [](const char* key, double value) {
    LossScale scale = Make();
    const auto before = scale.State();
    auto state = before;
    state[key] = value;
    const absl::Status status = scale.LoadState(state);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(scale.State(), before);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("scale", kInfinity), HasSubstr("scale is inf: must be"));
  EXPECT_THAT(refusal("growth_interval", 1.5),
              HasSubstr("growth_interval is 1.5: must be a whole number"));
  EXPECT_THAT(refusal("_growth_tracker", -1), HasSubstr("_growth_tracker"));
  EXPECT_THAT(refusal("_growth_tracker", std::nan("")),
              HasSubstr("_growth_tracker is nan"));
  EXPECT_THAT(refusal("steps", 1), HasSubstr("unknown key, steps"));
  LossScale scale = Make();
  EXPECT_THAT(std::string(scale.LoadState({}).message()),
              HasSubstr("lacks scale: it is empty, as that of one that is"));
}

TEST(LossScaleTest, RefusesOptionsByName) {
  const auto refusal = [](void (*spoil)(GradScalerOptions&)) {
    GradScalerOptions options;
    spoil(options);
    const absl::Status status = LossScale::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](auto& o) { o.init_scale = 0; }),
              HasSubstr("init_scale is 0: must be a number from"));
  EXPECT_THAT(refusal([](auto& o) { o.init_scale = 1e39; }),
              HasSubstr("init_scale is 1e+39"));
  EXPECT_THAT(refusal([](auto& o) { o.init_scale = std::nan(""); }),
              HasSubstr("init_scale is nan"));
  EXPECT_EQ(refusal([](auto& o) { o.growth_factor = 1; }),
            "growth_factor is 1: must be a number greater than 1");
  EXPECT_THAT(refusal([](auto& o) { o.growth_factor = kInfinity; }),
              HasSubstr("growth_factor is inf"));
  EXPECT_EQ(refusal([](auto& o) { o.backoff_factor = 1; }),
            "backoff_factor is 1: must be greater than 0 and less than 1");
  EXPECT_THAT(refusal([](auto& o) { o.backoff_factor = 0; }),
              HasSubstr("backoff_factor is 0"));
  EXPECT_EQ(refusal([](auto& o) { o.growth_interval = 0; }),
            "growth_interval is 0: must be at least 1");
}

TEST(LossScaleTest, AConstantOneSkipsAndStays) {
  GradScalerOptions options;
  options.init_scale = 1;
  options.constant = true;
  LossScale scale = Make(options);
  UpdateTimes(scale, 50, /*found_inf=*/true);
  EXPECT_TRUE(scale.last_was_skipped());
  EXPECT_EQ(scale.skipped_steps(), 50);
  UpdateTimes(scale, 5000, /*found_inf=*/false);
  EXPECT_FALSE(scale.last_was_skipped());
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_TRUE(scale.State().empty());
  EXPECT_TRUE(scale.LoadState({{"scale", 4}}).ok());
  EXPECT_EQ(scale.scale(), 1);
}

using testing::HasSubstr;

LossScale ScaleOf(double init_scale, int64_t growth_interval = 3) {
  GradScalerOptions options;
  options.init_scale = init_scale;
  options.growth_interval = growth_interval;
  return *LossScale::Create(options);
}

absl::Status Alone(const at::Tensor& /*found*/) { return absl::OkStatus(); }

class DeviceLossScaleTest : public DeviceTypeTest {
 protected:
  // A step in which `finder`, a device, finds an infinity; -1: nobody does.
  static at::Tensor Step(DeviceLossScale& scale, int finder) {
    scale.Begin();
    if (finder >= 0) scale.found_inf(static_cast<size_t>(finder)).fill_(1);
    EXPECT_TRUE(scale.Agree(Alone).ok());
    return scale.Update(0);
  }
};

TEST_P(DeviceLossScaleTest, FollowsAsTheHostsThoughVerdictsAreReadLate) {
  const std::vector<c10::Device> devices = Devices(3);
  DeviceLossScale scale(ScaleOf(1000), devices);
  LossScale expected = ScaleOf(1000);
  std::vector<at::Tensor> unread;
  for (const int finder : {-1, -1, 0, 2, -1, -1, -1, -1, 1, -1, -1, -1}) {
    unread.push_back(Step(scale, finder));
    ASSERT_TRUE(expected.Update(finder >= 0).ok());
    for (size_t i = 0; i < devices.size(); ++i) {
      EXPECT_EQ(scale.scale(i).item<float>(), expected.scale()) << i;
      EXPECT_EQ(scale.found_inf(i).item<float>(), finder >= 0 ? 1 : 0) << i;
    }
  }
  EXPECT_EQ(scale.known().scale(), 1000);
  for (const at::Tensor& each : unread) {
    ASSERT_TRUE(scale.NoteVerdict(each.item<float>() != 0).ok());
  }
  EXPECT_EQ(scale.known().State(), expected.State());
  EXPECT_EQ(scale.known().skipped_steps(), 3);
}

// A checkpoint's tracker may be beyond this job's interval.
TEST_P(DeviceLossScaleTest, GrowsAsTheHostsWhereAShorterIntervalGoesOn) {
  for (const double tracker : {2.0, 3.0, 4.0, 100.0}) {
    LossScale expected = ScaleOf(1024, /*growth_interval=*/4);
    std::map<std::string, double> state = expected.State();
    state["_growth_tracker"] = tracker;
    ASSERT_TRUE(expected.LoadState(state).ok());
    DeviceLossScale scale(expected, Devices(1));
    for (int i = 0; i < 10; ++i) {
      const at::Tensor found = Step(scale, -1);
      ASSERT_TRUE(expected.Update(false).ok());
      EXPECT_EQ(scale.scale(0).item<float>(), expected.scale()) << i;
      ASSERT_TRUE(scale.NoteVerdict(found.item<float>() != 0).ok());
    }
    EXPECT_EQ(scale.known().State(), expected.State());
    EXPECT_GE(expected.scale(), 4096);
  }
}

TEST_P(DeviceLossScaleTest, InverseIsRoundedAsTheHosts) {
  for (const double init : {3.0, 65536.0, 1e-3}) {
    DeviceLossScale scale(ScaleOf(init), Devices(1));
    scale.Begin();
    EXPECT_EQ(scale.inverse(0).item<float>(), ScaleOf(init).inverse());
  }
}

TEST_P(DeviceLossScaleTest, WhatIsChangedBetweenStepsHolds) {
  DeviceLossScale scale(ScaleOf(16, 2), Devices(2));
  ASSERT_TRUE(scale.NoteVerdict(Step(scale, -1).item<float>() != 0).ok());
  ASSERT_TRUE(scale.known().LoadState(ScaleOf(64, 2).State()).ok());
  const at::Tensor verdict = Step(scale, 1);
  EXPECT_EQ(verdict.item<float>(), 1);
  EXPECT_EQ(scale.scale(0).item<float>(), 32);
  EXPECT_EQ(scale.scale(1).item<float>(), 32);
}

TEST_P(DeviceLossScaleTest, WhatIsChangedHoldsOnceAllVerdictsAreRead) {
  DeviceLossScale scale(ScaleOf(16), Devices(1));
  const at::Tensor first = Step(scale, 0);
  const at::Tensor second = Step(scale, -1);
  ASSERT_TRUE(scale.known().LoadState(ScaleOf(64).State()).ok());
  scale.Begin();
  EXPECT_EQ(scale.scale(0).item<float>(), 8);
  ASSERT_TRUE(scale.known().LoadState(ScaleOf(16).State()).ok());
  for (const at::Tensor& verdict : {first, second}) {
    ASSERT_TRUE(scale.NoteVerdict(verdict.item<float>() != 0).ok());
  }
  EXPECT_EQ(scale.known().scale(), 8);
  ASSERT_TRUE(scale.known().LoadState(ScaleOf(64).State()).ok());
  scale.Begin();
  EXPECT_EQ(scale.scale(0).item<float>(), 64);
}

TEST_P(DeviceLossScaleTest, AnotherRanksVerdictIsThisOnesToo) {
  DeviceLossScale scale(ScaleOf(16), Devices(2));
  scale.Begin();
  ASSERT_TRUE(scale
                  .Agree([](const at::Tensor& found) {
                    found.add_(2);  // of two others
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(scale.found_inf(0).item<float>(), 1);
  EXPECT_EQ(scale.found_inf(1).item<float>(), 1);
  EXPECT_EQ(scale
                .Agree([](const at::Tensor&) {
                  return absl::UnavailableError("rank 1 is gone");
                })
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST_P(DeviceLossScaleTest, AScaleThatFallsTooFarIsToldWhenItIsRead) {
  DeviceLossScale scale(ScaleOf(kLeastLossScale), Devices(1));
  const at::Tensor verdict = Step(scale, 0);
  EXPECT_THAT(
      std::string(scale.NoteVerdict(verdict.item<float>() != 0).message()),
      HasSubstr("were not finite"));
}

TANDEM_ON_DEVICE_TYPES(DeviceLossScaleTest);

}  // namespace
}  // namespace tandem::loss_scale_test
