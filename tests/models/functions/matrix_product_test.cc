#include "models/functions/matrix_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Whole numbers so small that every sum of products is exact in float, and
// every operand in bf16.
at::Tensor Whole(int64_t rows, int64_t columns, at::ScalarType dtype) {
  return at::randint(-8, 9, {rows, columns}).to(dtype);
}

// The same numbers, lying column by column.
at::Tensor ByColumns(const at::Tensor& matrix) {
  return matrix.t().contiguous().t();
}

at::Tensor Expected(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a.to(at::kDouble), b.to(at::kDouble)).to(at::kFloat);
}

// m, k, n; the last large enough for oneDNN by its rule.
using Shape = std::tuple<int64_t, int64_t, int64_t>;

class PutMatrixProductTest
    : public testing::TestWithParam<std::tuple<Shape, at::ScalarType>> {
 protected:
  void Check(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor expected = Expected(a, b);
    const at::Tensor product = at::full(expected.sizes(), 3.f);
    PutMatrixProduct(product, a, b);
    // In bf16 it may have been rounded to that in between.
    EXPECT_TRUE(a.scalar_type() != at::kFloat || product.equal(expected));
    const at::Tensor put = product.clone();
    PutMatrixProduct(product, a, b, /*adds=*/true);
    EXPECT_TRUE(product.equal(put + put));
  }
};

TEST_P(PutMatrixProductTest, WritesOrAdds) {
  const auto& [shape, dtype] = GetParam();
  const auto& [m, k, n] = shape;
  const at::Tensor a = Whole(m, k, dtype);
  const at::Tensor b = Whole(k, n, dtype);
  Check(a, b);
  Check(ByColumns(a), b);
  Check(a, ByColumns(b));
}

std::string TestName(
    const testing::TestParamInfo<PutMatrixProductTest::ParamType>& info) {
  const auto& [shape, dtype] = info.param;
  const auto& [m, k, n] = shape;
  return absl::StrCat(m, "x", k, "x", n, at::toString(dtype));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PutMatrixProductTest,
    testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{0, 3, 2},
                                     Shape{3, 0, 2}, Shape{7, 33, 5},
                                     Shape{129, 160, 131}),
                     testing::Values(at::kFloat, at::kBFloat16)),
    TestName);

}  // namespace
}  // namespace tandem
