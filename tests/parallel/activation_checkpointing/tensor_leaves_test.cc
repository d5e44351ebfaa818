#include "parallel/activation_checkpointing/tensor_leaves.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem::tensor_leaves_test {
namespace {

using Values =
    std::tuple<at::Tensor, std::vector<std::pair<int, at::Tensor>>,
               std::map<std::string, std::optional<at::Tensor>>,
               std::array<at::Tensor, 2>, std::vector<bool>, std::string>;

at::Tensor Number(double value) { return at::full({}, value); }

Values Example() {
  return {Number(1),
          {{7, Number(2)}, {8, at::Tensor()}},
          {{"b", Number(4)}, {"a", Number(3)}, {"c", std::nullopt}},
          {Number(5), Number(6)},
          {true},
          "text"};
}

TEST(TensorLeavesTest, AreTakenInOrderAndPutBack) {
  Values values = Example();
  const TakenTensors taken = TakeTensors(values);
  ASSERT_EQ(taken.tensors.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(taken.tensors[i].item<double>(), static_cast<double>(i + 1));
  }
  EXPECT_EQ(taken.is_taken,
            (std::vector<bool>{true, true, false, true, true, true, true}));
  EXPECT_FALSE(std::get<0>(values).defined());
  Values copy = values;
  PutTensors(taken.is_taken, taken.tensors, copy);
  EXPECT_TRUE(std::get<0>(copy).is_same(taken.tensors[0]));
  EXPECT_FALSE(std::get<1>(copy)[1].second.defined());
  EXPECT_TRUE(std::get<2>(copy)["a"]->is_same(taken.tensors[2]));
  EXPECT_FALSE(std::get<2>(copy)["c"].has_value());
  EXPECT_EQ(std::get<5>(copy), "text");
}

TEST(TensorLeavesTest, WhatHoldsNoneHasNone) {
  std::map<int, std::vector<double>> none = {{1, {2}}};
  EXPECT_TRUE(TakeTensors(none).tensors.empty());
  std::tuple<> nothing;
  EXPECT_TRUE(TakeTensors(nothing).is_taken.empty());
}

}  // namespace
}  // namespace tandem::tensor_leaves_test
