#include "parallel/optim/parameter_update.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/instrument/fault_point.h"
#include "core/testing/statuses.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem::parameter_update_test {
namespace {

using ::testing::HasSubstr;

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
  ASSERT_TRUE(
      update->Step(/*learning_rate=*/1, GradientNorms{/*averaged=*/8, 1}).ok());
  EXPECT_NEAR(model.w.grad()[0].item<double>(), 4.0 / 8, 1e-6);
  EXPECT_NEAR(model.w[0].item<double>(), 1 - 4.0 / 8, 1e-6);
}

TEST(ParameterUpdateTest, UnscalesAndTellsWhatIsNotFinite) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  const at::Tensor inverse = at::full({}, 0.25, at::kFloat);
  const at::Tensor found_inf = at::zeros({}, at::kFloat);
  model.Backward(100);
  update->Unscale(inverse, found_inf);
  EXPECT_EQ(found_inf.item<float>(), 0);
  EXPECT_EQ(model.w.grad()[0].item<double>(), 25);
  model.Backward(std::numeric_limits<double>::infinity());
  update->Unscale(inverse, found_inf);
  EXPECT_EQ(found_inf.item<float>(), 1);
}

// One pass clips and steps: as clipping and then stepping, but for a rounding.
TEST(ParameterUpdateTest, ClipsInTheOptimizersPassAsPyTorchDoesBefore) {
  const std::vector<OptimizerOptions> optimizers = {
      SgdOptions{/*momentum=*/0.9}, AdamOptions(), AdamWOptions()};
  int compared = 0;
  for (const OptimizerOptions& optimizer : optimizers) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const double norm : {0.5, 3.0, 1e9}) {
        UpdateOptions options;
        options.optimizer = optimizer;
        options.clip_norm = 1;
        const at::Tensor start = at::randn({37}, dtype);
        at::Tensor a = start.clone().requires_grad_();
        at::Tensor b = start.clone().requires_grad_();
        const FlatBuffers fused = MakeFlatBuffers({{"w", a}});
        const FlatBuffers apart = MakeFlatBuffers({{"w", b}});
        auto update = ParameterUpdate::Create(options, fused);
        auto alone = MakeOptimizer(optimizer, apart);
        for (int step = 0; step < 3; ++step) {
          const at::Tensor gradient = at::randn({37}, dtype);
          fused[0]->grads().narrow(0, 0, 37).copy_(gradient);
          apart[0]->grads().narrow(0, 0, 37).copy_(gradient);
          fused[0]->set_has_gradient(0, true);
          apart[0]->set_has_gradient(0, true);
          ASSERT_TRUE(update->Step(0.1, GradientNorms{norm, norm}).ok());
          ScaleGradients(apart, 1, norm);
          (*alone)->Step(0.1);
        }
        const double tolerance = dtype == at::kFloat ? 4e-6 : 1e-14;
        EXPECT_TRUE(a.grad().allclose(b.grad(), tolerance, 0)) << norm;
        EXPECT_TRUE(a.allclose(b, tolerance, tolerance)) << norm;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 18);
}

TEST(ParameterUpdateTest, ANormThatIsNotFiniteMakesGradientsNanOrZero) {
  for (const double norm : {std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    Model model;
    UpdateOptions options;
    options.clip_norm = 1;
    auto update = ParameterUpdate::Create(options, model.buffers);
    ASSERT_TRUE(update.ok()) << update.status();
    model.Backward(2);
    ASSERT_TRUE(update->Step(1, GradientNorms{norm, norm}).ok());
    const double gradient = model.w.grad()[0].item<double>();
    EXPECT_TRUE(std::isnan(norm) ? std::isnan(gradient) : gradient == 0);
  }
}

// 1e43 is more than a float32 holds.
TEST(ParameterUpdateTest, ClipsByAnyNormThatIsFinite) {
  Model model;
  UpdateOptions options;
  options.clip_norm = 1;
  auto update = ParameterUpdate::Create(options, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(0x1p126);
  ASSERT_TRUE(update->Step(1, GradientNorms{1e43, 1e43}).ok());
  EXPECT_NEAR(model.w.grad()[0].item<double>() * 1e43 / 0x1p126, 1, 1e-6);
}

TEST(ParameterUpdateTest, AParameterThatWasReplacedIsNamed) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  model.w.set_data(at::ones({3}));
  EXPECT_THAT(update->Step(1, std::nullopt), Says("parameter w was replaced"));
}

TEST(ParameterUpdateTest, HasAFaultPointBeforeTheOptimizer) {
  Model model;
  auto update = ParameterUpdate::Create({}, model.buffers);
  ASSERT_TRUE(update.ok()) << update.status();
  model.Backward(2);
  Fault fault;
  fault.point = "before_optimizer";
  ArmFaults({fault});
  EXPECT_FALSE(update->Step(1, std::nullopt).ok());
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
}  // namespace tandem::parameter_update_test
