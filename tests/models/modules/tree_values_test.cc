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

#include "core/testing/statuses.h"

namespace tandem::tree_values_test {
namespace {

using at::Tensor;
using c10::ivalue::Tuple;
using testing::ElementsAre;
using testing::HasSubstr;

// (a, none, [b], {'mask': c})
c10::IValue Example(const at::Tensor& a, const at::Tensor& none,
                    const at::Tensor& b, const at::Tensor& c) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("mask", c);
  return Tuple::create({a, none, c10::List<at::Tensor>({b}), dict});
}

TEST(TreeFormTest, OneTensorIsTheUsual) {
  const TreeForm form;
  EXPECT_THAT(form.paths(), ElementsAre(""));
  const at::Tensor a = at::ones({2});
  EXPECT_TRUE(form.Build({a}).toTensor().is_same(a));
  EXPECT_TRUE(form.Take(a).value()[0].is_same(a));
}

TEST(TreeFormTest, TakesApartWhatItBuilds) {
  const at::Tensor a = at::ones({1}), b = at::ones({2}), c = at::ones({3});
  const absl::StatusOr<TreeForm> form =
      TreeForm::Of(Example(c, at::Tensor(), a, b));
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_THAT(form->paths(), ElementsAre("[0]", "[2][0]", "[3]['mask']"));
  const c10::IValue tree = form->Build({a, b, c});
  const auto& elements = tree.toTupleRef().elements();
  EXPECT_TRUE(elements[0].toTensor().is_same(a));
  EXPECT_FALSE(elements[1].toTensor().defined());
  EXPECT_TRUE(elements[2].toList().get(0).toTensor().is_same(b));
  EXPECT_TRUE(elements[3].toGenericDict().at("mask").toTensor().is_same(c));
  const auto tensors = form->Take(tree);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_TRUE((*tensors)[2].is_same(c));
}

TEST(TreeFormTest, AnotherFormIsRefused) {
  const at::Tensor a = at::ones({1});
  const TreeForm form = *TreeForm::Of(Example(a, at::Tensor(), a, a));
  const absl::Status all = form.Take(Example(a, a, a, a)).status();
  EXPECT_EQ(all.message(),
            "tensors at [0], [1], [2][0], [3]['mask'], where tensors at [0], "
            "[2][0], [3]['mask'] should be");
  EXPECT_EQ(form.Take(a).status().message(),
            "one tensor, where tensors at [0], [2][0], [3]['mask'] should be");
  // A tensor that is undefined elsewhere.
  EXPECT_FALSE(form.Take(Example(a, at::Tensor(), at::Tensor(), a)).ok());
  EXPECT_FALSE(TreeForm().Take(Tuple::create({a})).ok());
}

TEST(TreeFormTest, WhatIsNoTreeIsRefused) {
  const absl::Status number =
      TreeForm::Of(Tuple::create({at::ones({1}), 5})).status();
  EXPECT_THAT(number, Says("'[1]' is of type Int"));
  EXPECT_THAT(TreeForm::Of(at::Tensor()).status(), Says("no defined tensor"));
}

template <typename T>
T ThereAndBack(const T& value) {
  return FromTree<T>(ToTree(value), "value");
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
  EXPECT_TRUE(FromTree<Dict>(ToTree(map), "").at("a").is_same(map.at("a")));
}

template <typename T>
std::string ErrorText(const c10::IValue& tree) {
  try {
    FromTree<T>(tree, "value");
  } catch (const c10::TypeError& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

TEST(TreeValuesTest, WhatDoesNotFitIsNamed) {
  const Tensor a = at::ones({1});
  const c10::IValue pair = ToTree(std::make_tuple(a, std::vector<Tensor>{a}));
  EXPECT_THAT(ErrorText<Tensor>(pair),
              HasSubstr("value is of type Tuple, where a tensor is expected"));
  using Three = std::tuple<Tensor, Tensor, Tensor>;
  EXPECT_THAT(ErrorText<Three>(pair), HasSubstr("a tuple of 3 is expected"));
  using Two = std::tuple<Tensor, std::vector<std::vector<Tensor>>>;
  EXPECT_THAT(ErrorText<Two>(pair),
              HasSubstr("value[1][0] is of type Tensor, where a list"));
  using Map = std::map<std::string, Tensor>;
  EXPECT_THAT(ErrorText<Map>(a), HasSubstr("where a dict is expected"));
}

}  // namespace
}  // namespace tandem::tree_values_test
