// Places that graphs read: of the form of what is copied there.

#include "core/graph/fixed_tensor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem {
namespace {

TEST(FixedTensorTest, FormIsOfWhatMayShareAPlace) {
  EXPECT_EQ(FormOfTensor(torch::zeros({2, 3})), "Float[2,3]");
  EXPECT_EQ(FormOfTensor(torch::zeros({}, torch::kLong)), "Long[]");
  EXPECT_EQ(FormOfTensor(torch::zeros({1}).requires_grad_()), "Float[1]*");
  EXPECT_EQ(FormOfTensor(torch::Tensor()), "none");
}

TEST(FixedTensorTest, APlaceIsLikeWhatIsCopiedThere) {
  const torch::Tensor given =
      torch::arange(6).to(torch::kFloat).view({2, 3}).t().requires_grad_();
  const torch::Tensor place = PlaceFor(given, torch::kCPU);
  EXPECT_EQ(FormOfTensor(place), FormOfTensor(given));
  EXPECT_EQ(place.strides(), given.strides());
  FillPlace(place, given);
  EXPECT_TRUE(place.equal(given));
  EXPECT_TRUE(place.is_leaf());
  FillPlace(place, given.detach() + 1);
  EXPECT_TRUE(place.equal(given + 1));
}

TEST(FixedTensorTest, NothingHasNoPlace) {
  EXPECT_FALSE(PlaceFor(torch::Tensor(), torch::kCPU).defined());
  FillPlace(torch::Tensor(), torch::Tensor());
}

}  // namespace
}  // namespace tandem
