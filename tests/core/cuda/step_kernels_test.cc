// The host's step kernels, on the CPU and on simulated devices, and the GPU's
// where there is one.

#include "core/cuda/step_kernels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/cuda/host_step_kernels.h"
#include "core/cuda/step_kernels_of.h"
#include "core/testing/device_types.h"

namespace tandem::step_kernels_test {
namespace {

constexpr double kTolerance = 2e-6;  // some roundings of float32

class StepKernelsTest : public DeviceTypeTest {
 protected:
  void SetUp() override { at::manual_seed(3); }
  static at::Tensor There(const at::Tensor& tensor) {
    return tensor.to(TestDevice());
  }

  const StepKernels& kernels_ =
      TestDevice().is_cuda() ? *StepKernelsOf(c10::kCUDA) : HostStepKernels();
};

TANDEM_ON_DEVICE_TYPES(StepKernelsTest);

TEST_P(StepKernelsTest, TheFactorIsOfAllGradientsTogether) {
  const at::Tensor a = at::full({3}, 2.0F);  // 3 x 4
  const at::Tensor b = at::full({13}, 1.0F);
  const at::Tensor none = at::empty({0});
  FactorOptions options;
  options.inverse_scale = 0.5F;
  options.max_norm = 1;
  const GradientFactor found = ReadFactor(
      kernels_.FindFactor({There(a), There(none), There(b)}, options));
  EXPECT_EQ(found.norm, 2.5F);  // of 25, unscaled
  EXPECT_NEAR(found.factor, 0.5 / 2.5, 1e-6);
  EXPECT_EQ(found.skip, 0);
}

TEST_P(StepKernelsTest, WhatIsNotFiniteIsSkippedOrGoesWhereClippingTakesIt) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor grads = at::ones({5});
    grads[4].fill_(bad);
    FactorOptions options;
    options.max_norm = 1;
    EXPECT_NE(ReadFactor(kernels_.FindFactor({There(grads)}, options)).skip, 0);
    options.skips_nonfinite = false;
    const GradientFactor found =
        ReadFactor(kernels_.FindFactor({There(grads)}, options));
    EXPECT_EQ(found.skip, 0);
    EXPECT_TRUE(std::isnan(bad) ? std::isnan(found.factor) : found.factor == 0);
  }
}

at::Tensor FactorBytes(float factor, int skip) {
  const GradientFactor found = {/*norm=*/0, factor, skip};
  at::Tensor bytes = at::empty({sizeof(found)}, at::kByte);
  std::memcpy(bytes.data_ptr(), &found, sizeof(found));
  return bytes;
}

TEST_P(StepKernelsTest, AStepMultipliesGradientsAndLeavesThem) {
  const at::Tensor values = There(at::ones({7}));
  const at::Tensor grads = There(at::full({7}, 4.0F));
  SgdStep sgd;
  sgd.learning_rate = 0.5F;
  kernels_.Step({values, grads, {}, {}}, sgd, There(FactorBytes(0.25F, 0)));
  EXPECT_TRUE(values.cpu().equal(at::full({7}, 0.5F)));
  EXPECT_TRUE(grads.cpu().equal(at::full({7}, 4.0F)));
  kernels_.Step({values, grads, {}, {}}, sgd, There(FactorBytes(0.25F, 1)));
  EXPECT_TRUE(values.cpu().equal(at::full({7}, 0.5F)));
}

TEST_P(StepKernelsTest, AdamStepsAsLibTorchs) {
  const at::Tensor start = at::randn({37});
  const at::Tensor grads = at::randn({37});
  const at::Tensor values = There(start), average = There(at::zeros({37})),
                   squares = There(at::zeros({37}));
  at::Tensor expected = start.clone(), its_average = at::zeros({37}),
             its_squares = at::zeros({37});
  AdamStep adam;
  adam.learning_rate = 0.1F;
  adam.rest_of_beta1 = 0.1F;
  adam.beta2 = 0.999F;
  adam.rest_of_beta2 = 0.001F;
  adam.eps = 1e-3F;
  adam.weight_decay = 0.1F;
  adam.decoupled = true;
  adam.bias_correction1 = 0.1F;
  adam.bias_correction2_root = std::sqrt(0.001F);
  kernels_.Step({values, There(grads), average, squares}, adam,
                There(FactorBytes(0.5F, 0)));
  at::_fused_adamw_({expected}, {grads.mul(0.5)}, {its_average}, {its_squares},
                    {}, {at::ones({})}, 0.1, 0.9, 0.999, 0.1, 1e-3, false,
                    false);
  EXPECT_TRUE(values.cpu().allclose(expected, kTolerance, kTolerance));
  EXPECT_TRUE(average.cpu().allclose(its_average, kTolerance, kTolerance));
  EXPECT_TRUE(squares.cpu().allclose(its_squares, kTolerance, kTolerance));
}

TEST(StepKernelsOf, IsWhatWasRegistered) {
  EXPECT_EQ(StepKernelsOf(c10::kCPU), nullptr);
  RegisterStepKernels(c10::kCPU, &HostStepKernels());
  EXPECT_EQ(StepKernelsOf(c10::kCPU), &HostStepKernels());
  RegisterStepKernels(c10::kCPU, nullptr);
  EXPECT_EQ(StepKernelsOf(c10::kCPU), nullptr);
}

}  // namespace
}  // namespace tandem::step_kernels_test
