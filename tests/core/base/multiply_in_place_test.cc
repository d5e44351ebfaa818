#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "core/base/tensors.h"

namespace tandem::multiply_in_place_test {
namespace {

TEST(MultiplyInPlaceTest, RoundsTheProductAlone) {
  for (const c10::ScalarType dtype :
       {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor numbers = at::arange(256).to(dtype);
    const at::Tensor product = numbers.clone();
    MultiplyInPlace(product, 1.0 / 3);
    const auto opmath = dtype == at::kDouble ? at::kDouble : at::kFloat;
    EXPECT_TRUE(at::equal(product, numbers.to(opmath).mul(1.0 / 3).to(dtype)))
        << dtype;
    EXPECT_EQ(product.scalar_type(), dtype);
  }
}

// When this fails, LibTorch's own will do.
TEST(MultiplyInPlaceTest, LibTorchsRoundsTheNumberToo) {
  const at::Tensor numbers = at::arange(256).to(at::kBFloat16);
  EXPECT_FALSE(at::equal(numbers.clone().mul_(1.0 / 3), numbers.mul(1.0 / 3)));
}

}  // namespace
}  // namespace tandem::multiply_in_place_test
