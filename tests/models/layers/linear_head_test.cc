#include "models/layers/linear_head.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "models/layers/basic_layers.h"

namespace tandem::linear_head_test {
namespace {

using ::testing::HasSubstr;

LayerSpec Head(bool bias) { return LinearLayer("head", 3, 5, bias); }

TEST(LinearHeadTest, ALinearLayerMayBeTheLast) {
  EXPECT_TRUE(CheckEndsInLinear({Head(true)}, "a loss").ok());
  const absl::Status other =
      CheckEndsInLinear({Head(true), ReluLayer("relu")}, "a loss");
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other.message(),
            "a loss needs a model that ends in a linear layer, but this one "
            "ends in layer relu of type ReLU");
  EXPECT_THAT(std::string(CheckEndsInLinear({}, "a loss").message()),
              HasSubstr("ends in nothing"));
  LayerSpec leaves = Head(true);
  leaves.links.stash = {"skip"};
  EXPECT_FALSE(CheckEndsInLinear({leaves}, "a loss").ok());
}

TEST(LinearHeadTest, AWeightIsTakenWhereNothingIsBesideIt) {
  EXPECT_EQ(OnlyWeight(Head(false).make(3), "a loss").sizes(),
            (at::IntArrayRef{5, 3}));
  EXPECT_THROW(OnlyWeight(Head(true).make(3), "a loss"), c10::ValueError);
  EXPECT_THROW(OnlyWeight(ReluLayer("relu").make(3), "a loss"),
               c10::ValueError);
}

}  // namespace
}  // namespace tandem::linear_head_test
