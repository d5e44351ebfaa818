// The GPU's fused steps against the same arithmetic on the host, and beside
// ATen's. Needs a GPU: without one it says so.

#include "core/cuda/optimizer_kernels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tandem {
namespace {

int Gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

class OptimizerKernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (Gpus() == 0) GTEST_SKIP() << "there is no GPU";
    at::manual_seed(5);
  }

  static at::Tensor OnGpu(const at::Tensor& tensor) {
    return tensor.to(at::kCUDA);
  }
  static at::Tensor Random(int64_t length) { return at::randn({length}); }
};

GradientFactor FactorFrom(const at::Tensor& bytes) {
  GradientFactor factor;
  std::memcpy(&factor, bytes.cpu().data_ptr(), sizeof(factor));
  return factor;
}

// A GradientFactor in device memory.
at::Tensor FactorBytes() {
  return at::zeros({sizeof(GradientFactor)},
                   at::TensorOptions(at::kByte).device(at::kCUDA));
}

cudaError_t Find(const at::Tensor& grads, const FactorOptions& options,
                 at::Tensor& into) {
  const at::Tensor scratch = at::empty(
      {kFactorScratch}, at::TensorOptions(at::kDouble).device(at::kCUDA));
  return FindGradientFactor(grads.data_ptr<float>(), grads.numel(), options,
                            scratch.data_ptr<double>(),
                            static_cast<GradientFactor*>(into.data_ptr()),
                            /*stream=*/nullptr);
}

// No element, fewer than a vector, a prime, more than one pass of the grid.
INSTANTIATE_TEST_SUITE_P(Lengths, OptimizerKernelsTest,
                         testing::Values(0, 1, 3, 4, 1037, 1 << 20, 5000011));

TEST_P(OptimizerKernelsTest, TheFactorIsThatOfTheWholeNorm) {
  const at::Tensor grads = Random(GetParam());
  at::Tensor found = FactorBytes();
  ASSERT_EQ(Find(OnGpu(grads), {0.5f, 2}, found), cudaSuccess);
  const double sum = grads.to(at::kDouble).square().sum().item<double>();
  const GradientFactor expected = FactorOf(sum, {0.5f, 2});
  const GradientFactor factor = FactorFrom(found);
  EXPECT_FLOAT_EQ(factor.norm, expected.norm);
  EXPECT_FLOAT_EQ(factor.factor, expected.factor);
  EXPECT_EQ(factor.skip, 0);
}

TEST_P(OptimizerKernelsTest, OneElementThatIsNotFiniteIsFound) {
  const int64_t length = GetParam();
  if (length == 0) return;
  for (const int64_t place : {int64_t{0}, length / 2, length - 1}) {
    at::Tensor grads = Random(length);
    grads[place] = std::numeric_limits<float>::quiet_NaN();
    at::Tensor found = FactorBytes();
    ASSERT_EQ(Find(OnGpu(grads), {}, found), cudaSuccess);
    EXPECT_NE(FactorFrom(found).skip, 0) << place;
  }
}

TEST_P(OptimizerKernelsTest, AdamStepsAsAtens) {
  const at::Tensor values = OnGpu(Random(GetParam()));
  const at::Tensor grads = OnGpu(Random(GetParam()));
  const at::Tensor average = at::zeros_like(values);
  const at::Tensor squares = at::zeros_like(values);
  at::Tensor atens = values.clone();
  at::Tensor its_average = average.clone(), its_squares = squares.clone();
  AdamStep adam;
  adam.learning_rate = 0.01f;
  adam.rest_of_beta1 = 0.1f;
  adam.beta2 = 0.999f;
  adam.rest_of_beta2 = 0.001f;
  adam.eps = 1e-8f;
  adam.weight_decay = 0.1f;
  adam.decoupled = true;
  adam.bias_correction1 = 0.1f;
  adam.bias_correction2_root = std::sqrt(0.001f);
  const StepBuffers buffers{values.data_ptr<float>(), grads.data_ptr<float>(),
                            average.data_ptr<float>(),
                            squares.data_ptr<float>(), GetParam()};
  ASSERT_EQ(LaunchStep(buffers, adam, nullptr, nullptr), cudaSuccess);
  at::_fused_adamw_({atens}, {grads}, {its_average}, {its_squares}, {},
                    {at::ones({}, values.options())}, 0.01, 0.9, 0.999, 0.1,
                    1e-8, false, false);
  EXPECT_TRUE(at::allclose(values, atens, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(average, its_average, 1e-6, 1e-7));
  EXPECT_TRUE(at::allclose(squares, its_squares, 1e-6, 1e-9));
}

TEST_P(OptimizerKernelsTest, AFactorThatSkipsLeavesEverythingAlone) {
  const at::Tensor values = OnGpu(Random(GetParam()));
  const at::Tensor before = values.clone();
  at::Tensor grads = OnGpu(Random(GetParam()));
  if (GetParam() == 0) return;
  grads[0] = std::numeric_limits<float>::infinity();
  at::Tensor found = FactorBytes();
  ASSERT_EQ(Find(grads, {}, found), cudaSuccess);
  SgdStep sgd;
  sgd.learning_rate = 0.1f;
  const StepBuffers buffers{values.data_ptr<float>(), grads.data_ptr<float>(),
                            nullptr, nullptr, GetParam()};
  auto* factor = static_cast<GradientFactor*>(found.data_ptr());
  ASSERT_EQ(LaunchStep(buffers, sgd, factor, nullptr), cudaSuccess);
  EXPECT_TRUE(at::equal(values, before));
  grads[0] = 1;
  ASSERT_EQ(Find(grads, {0.5f, 0}, found), cudaSuccess);
  ASSERT_EQ(LaunchStep(buffers, sgd, factor, nullptr), cudaSuccess);
  EXPECT_TRUE(at::allclose(values, before - 0.05 * grads, 1e-6, 1e-7));
}

}  // namespace
}  // namespace tandem
