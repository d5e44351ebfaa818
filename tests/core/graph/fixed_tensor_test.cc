// Places that graphs read: of the form of what is copied there.

#include "core/graph/fixed_tensor.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace tandem::fixed_tensor_test {
namespace {

TEST(FixedTensorTest, FormIsOfWhatMayShareAPlace) {
  EXPECT_EQ(FormOfTensor(at::zeros({2, 3})), "Float[2,3]");
  EXPECT_EQ(FormOfTensor(at::zeros({}, at::kLong)), "Long[]");
  EXPECT_EQ(FormOfTensor(at::zeros({1}).requires_grad_()), "Float[1]*");
  EXPECT_EQ(FormOfTensor(at::Tensor()), "none");
}

TEST(FixedTensorTest, APlaceIsLikeWhatIsCopiedThere) {
  const at::Tensor given =
      at::arange(6).to(at::kFloat).view({2, 3}).t().requires_grad_();
  const at::Tensor place = PlaceFor(given, at::kCPU);
  EXPECT_EQ(FormOfTensor(place), FormOfTensor(given));
  EXPECT_EQ(place.strides(), given.strides());
  FillPlace(place, given);
  EXPECT_TRUE(place.equal(given));
  EXPECT_TRUE(place.is_leaf());
  FillPlace(place, given.detach() + 1);
  EXPECT_TRUE(place.equal(given + 1));
}

TEST(FixedTensorTest, NothingHasNoPlace) {
  EXPECT_FALSE(PlaceFor(at::Tensor(), at::kCPU).defined());
  FillPlace(at::Tensor(), at::Tensor());
}

}  // namespace
}  // namespace tandem::fixed_tensor_test
