#include <ATen/Tensor.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "core/precision/loss_scale.h"
#include "core/testing/device_types.h"
#include "gtest/gtest.h"

namespace tandem::device_loss_scale_test {
namespace {

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
    ASSERT_TRUE(scale.Learn(each.item<float>() != 0).ok());
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
      ASSERT_TRUE(scale.Learn(found.item<float>() != 0).ok());
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
  ASSERT_TRUE(scale.Learn(Step(scale, -1).item<float>() != 0).ok());
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
    ASSERT_TRUE(scale.Learn(verdict.item<float>() != 0).ok());
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
  EXPECT_THAT(std::string(scale.Learn(verdict.item<float>() != 0).message()),
              HasSubstr("were not finite"));
}

TANDEM_ON_DEVICE_TYPES(DeviceLossScaleTest);

}  // namespace
}  // namespace tandem::device_loss_scale_test
