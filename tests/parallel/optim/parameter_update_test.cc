#include "parallel/optim/parameter_update.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/instrument/fault_point.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

absl::Status Nothing() { return absl::OkStatus(); }

struct Model {
  Model() : buffers(MakeFlatBuffers({{"w", w}})) {}
  void Backward(double gradient) {
    buffers[0]->ZeroGrad();
    w.mul(gradient).sum().backward();
  }
  at::Tensor w = at::ones({3}).requires_grad_();
  FlatBuffers buffers;
};

TEST(ParameterUpdateTest, ClipsByValueThenAsToldThenSteps) {
  Model model;
  UpdateOptions options;
  options.clip_value = 4;
  options.clip_norm = 1;
  auto update = ParameterUpdate::Create(options, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(100);
  update->ClipValues();
  EXPECT_EQ(model.w.grad()[0].item<double>(), 4);
  ASSERT_TRUE(update
                  ->Step(/*learning_rate=*/1,
                         [&] {
                           update->ScaleFor({/*averaged=*/8, /*own=*/1});
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_NEAR(model.w[0].item<double>(), 1 - 4.0 / 8, 1e-6);
}

TEST(ParameterUpdateTest, UnscalesAndTellsWhatIsNotFinite) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(100);
  EXPECT_FALSE(update->Unscale(0.25F));
  EXPECT_EQ(model.w.grad()[0].item<double>(), 25);
  model.Backward(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(update->Unscale(0.25F));
}

TEST(ParameterUpdateTest, NothingStepsWhenClippingFails) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  const absl::Status status =
      update->Step(1, [] { return absl::OutOfRangeError("no norm"); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("no norm"));
  EXPECT_EQ(model.w[0].item<double>(), 1);
}

TEST(ParameterUpdateTest, AParameterThatWasReplacedIsNamed) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  model.w.set_data(at::ones({3}));
  EXPECT_THAT(std::string(update->Step(1, Nothing).message()),
              HasSubstr("parameter w was replaced"));
}

TEST(ParameterUpdateTest, HasAFaultPointBeforeTheOptimizer) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  Fault fault;
  fault.point = "before_optimizer";
  ArmFaults({fault});
  EXPECT_FALSE(update->Step(1, Nothing).ok());
  ArmFaults({});
  EXPECT_EQ(model.w[0].item<double>(), 1);
}

TEST(ParameterUpdateTest, OptionsOutOfRangeAreNamed) {
  Model model;
  const auto refusal = [&](const UpdateOptions& options) {
    const auto update = ParameterUpdate::Create(options, model.buffers);
    EXPECT_EQ(update.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(update.status().message());
  };
  UpdateOptions options;
  options.clip_norm = -1;
  EXPECT_THAT(refusal(options), HasSubstr("clip_norm"));
  options = {};
  options.clip_norm_type = 0;
  EXPECT_THAT(refusal(options), HasSubstr("clip_norm_type"));
  options = {};
  options.clip_value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal(options), HasSubstr("clip_value"));
  options = {};
  options.grad_scaler.emplace();
  options.grad_scaler->growth_factor = 0.5;
  EXPECT_THAT(refusal(options), HasSubstr("growth_factor is 0.5"));
}

}  // namespace
}  // namespace tandem
