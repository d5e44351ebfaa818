#include "parallel/comm_hooks/orthogonalize.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "tests/models/rounding.h"
#include "tests/parallel/comm_hooks/hook_driver.h"

namespace tandem::orthogonalize_test {
namespace {

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

// As far from orthogonal as float can tell: plain Gram-Schmidt fails here.
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
}  // namespace tandem::orthogonalize_test
