#include "models/modules/tree_values.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem::tree_values_test {
namespace {

using at::Tensor;
using testing::HasSubstr;

template <typename T>
T ThereAndBack(const T& value) {
  return FromTree<T>(TreeOf(value), "value");
}

TEST(TreeValuesTest, ValuesComeBack) {
  const Tensor a = at::ones({1}), b = at::ones({2});
  EXPECT_TRUE(ThereAndBack(a).is_same(a));

  using Nested = std::tuple<std::map<std::string, std::vector<Tensor>>,
                            std::pair<Tensor, std::optional<Tensor>>>;
  const Nested nested = {{{"x", {a, b}}, {"y", {}}}, {b, std::nullopt}};
  const Nested found = ThereAndBack(nested);
  EXPECT_TRUE(std::get<0>(found).at("x")[1].is_same(b));
  EXPECT_TRUE(std::get<0>(found).at("y").empty());
  EXPECT_TRUE(std::get<1>(found).first.is_same(b));
  EXPECT_FALSE(std::get<1>(found).second.has_value());

  c10::Dict<std::string, Tensor> dict;
  dict.insert("b", b);
  EXPECT_TRUE(ThereAndBack(dict).at("b").is_same(b));

  torch::OrderedDict<std::string, Tensor> ordered;
  ordered.insert("z", a);
  ordered.insert("a", b);
  const auto in_order = ThereAndBack(ordered);
  EXPECT_EQ(in_order[0].key(), "z");
  EXPECT_TRUE(in_order["a"].is_same(b));
}

// Dicts of different classes are one kind of tree.
TEST(TreeValuesTest, ADictMayBeTakenAsAnother) {
  const std::map<std::string, Tensor> map = {{"a", at::ones({1})}};
  using Dict = c10::Dict<std::string, Tensor>;
  EXPECT_TRUE(FromTree<Dict>(TreeOf(map), "").at("a").is_same(map.at("a")));
}

template <typename T>
std::string ErrorOf(const c10::IValue& tree) {
  try {
    FromTree<T>(tree, "value");
  } catch (const c10::TypeError& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

TEST(TreeValuesTest, WhatDoesNotFitIsNamed) {
  const Tensor a = at::ones({1});
  const c10::IValue pair = TreeOf(std::make_tuple(a, std::vector<Tensor>{a}));
  EXPECT_THAT(ErrorOf<Tensor>(pair),
              HasSubstr("value is of type Tuple, where a tensor is expected"));
  using Three = std::tuple<Tensor, Tensor, Tensor>;
  EXPECT_THAT(ErrorOf<Three>(pair), HasSubstr("a tuple of 3 is expected"));
  using Two = std::tuple<Tensor, std::vector<std::vector<Tensor>>>;
  EXPECT_THAT(ErrorOf<Two>(pair),
              HasSubstr("value[1][0] is of type Tensor, where a list"));
  using Map = std::map<std::string, Tensor>;
  EXPECT_THAT(ErrorOf<Map>(a), HasSubstr("where a dict is expected"));
}

}  // namespace
}  // namespace tandem::tree_values_test
