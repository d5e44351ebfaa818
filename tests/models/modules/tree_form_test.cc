#include "models/modules/tree_form.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::tree_form_test {
namespace {

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
  EXPECT_THAT(std::string(number.message()), HasSubstr("'[1]' is of type Int"));
  EXPECT_THAT(std::string(TreeForm::Of(at::Tensor()).status().message()),
              HasSubstr("no defined tensor"));
}

}  // namespace
}  // namespace tandem::tree_form_test
