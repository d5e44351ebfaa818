#include "tools/bench/measure/product_floor.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "models/functions/matrix_product.h"

namespace tandem::product_floor_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ProductFloorTest : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NDEBUG
    GTEST_SKIP() << "LibTorch's records have another layout in debug builds";
#endif
  }
};

json FloorOf(absl::FunctionRef<void()> step) {
  const auto floor = ProductFloor([&] {
    step();
    return absl::OkStatus();
  });
  EXPECT_TRUE(floor.ok()) << floor.status();
  return *floor;
}

TEST_F(ProductFloorTest, CountsCallsOfEachShape) {
  const at::Tensor a = at::ones({3, 5});
  const json floor = FloorOf([&] {
    at::mm(a, at::ones({5, 2}));
    at::mm(a, at::ones({5, 2}));
    at::mm(a, at::ones({7, 5}).t());
    at::relu(a);
  });
  const json& products = floor.at("products");
  ASSERT_EQ(products.size(), 2u);
  double sum = 0;
  double calls = 0;
  for (const json& each : products) {
    EXPECT_EQ(each.at("name"), "aten::mm");
    EXPECT_THAT(std::string(each.at("operands")),
                testing::AnyOf(HasSubstr("Float[5, 2]/[2, 1]"),
                               HasSubstr("Float[5, 7]/[1, 5]")));
    EXPECT_GT(each.at("ms"), 0);
    sum += each.at("ms").get<double>() * each.at("calls").get<double>();
    calls += each.at("calls").get<double>();
  }
  EXPECT_EQ(calls, 3);
  EXPECT_DOUBLE_EQ(floor.at("ms"), sum);
}

// conv2d calls a convolution, that another: one product.
TEST_F(ProductFloorTest, TakesTheInnermostAlone) {
  const at::Tensor x = at::ones({1, 2, 8, 8});
  const at::Tensor weight = at::ones({4, 2, 3, 3}).requires_grad_();
  const json floor = FloorOf([&] { at::conv2d(x, weight).sum().backward(); });
  ASSERT_EQ(floor.at("products").size(), 2u);  // and its backward
  for (const json& each : floor.at("products")) {
    EXPECT_THAT(std::string(each.at("name")), HasSubstr("onvolution"));
    EXPECT_EQ(each.at("calls"), 1);
  }
}

// Put in memory that is there, large enough for either library, and a bias that
// is one number wide.
TEST_F(ProductFloorTest, CallsWhatIsWrittenAndWhatIsExpanded) {
  const at::Tensor a = at::ones({256, 256});
  const at::Tensor product = at::ones({256, 256});
  const json floor = FloorOf([&] {
    PutMatrixProduct(product, a, a);
    at::linear(a, a, at::ones({1}).expand({256}));
  });
  EXPECT_EQ(product[0][0].item<float>(), 256);
  ASSERT_EQ(floor.at("products").size(), 2u);
  EXPECT_GT(floor.at("ms"), 0);
}

TEST_F(ProductFloorTest, FailsAsTheStepDoes) {
  EXPECT_EQ(ProductFloor([] { return absl::AbortedError("lost"); }).status(),
            absl::AbortedError("lost"));
}

TEST_F(ProductFloorTest, OfAStepWithoutProductsIsNothing) {
  const json floor = FloorOf([] { at::relu(at::ones({2})); });
  EXPECT_EQ(floor.at("ms"), 0);
  EXPECT_TRUE(floor.at("products").empty());
}

TEST(IsProduct, KnowsOperators) {
  for (const char* op :
       {"aten::addmm", "aten::bmm", "mkldnn::_linear_pointwise",
        "aten::mkldnn_convolution", "tandem::causal_attention",
        "tandem::put_matrix_product"}) {
    EXPECT_TRUE(IsProduct(op)) << op;
  }
  for (const char* op : {"aten::sum", "aten::_fused_sgd_", "aten::copy_"}) {
    EXPECT_FALSE(IsProduct(op)) << op;
  }
}

}  // namespace
}  // namespace tandem::product_floor_test
