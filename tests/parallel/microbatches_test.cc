#include "parallel/microbatches.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace tandem {
namespace {

using c10::IValue;
using Sizes = std::vector<int64_t>;

at::Tensor Rows(int64_t rows, int64_t width) {
  return at::arange(rows * width).view({rows, width});
}

TEST(MicrobatchesTest, EvenSizesDifferByOne) {
  EXPECT_EQ(EvenSizes(13, 4), Sizes({4, 3, 3, 3}));
  EXPECT_EQ(EvenSizes(12, 4), Sizes({3, 3, 3, 3}));
  EXPECT_EQ(EvenSizes(2, 4), Sizes({1, 1}));
  EXPECT_EQ(EvenSizes(0, 4), Sizes());
  EXPECT_EQ(EvenSizes(7, 1), Sizes({7}));
}

TEST(MicrobatchesTest, FixedSizesLeaveTheRestToTheLast) {
  EXPECT_EQ(FixedSizes(13, 4), Sizes({4, 4, 4, 1}));
  EXPECT_EQ(FixedSizes(12, 4), Sizes({4, 4, 4}));
  EXPECT_EQ(FixedSizes(3, 4), Sizes({3}));
  EXPECT_EQ(FixedSizes(0, 4), Sizes());
}

TEST(MicrobatchesTest, ABatchIsCutIntoViews) {
  const Batch batch = {Rows(5, 2), at::arange(5), 5};
  const std::vector<Batch> parts = SplitBatch(batch, {2, 2, 1});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].size, 1);
  EXPECT_TRUE(parts[1].inputs.equal(batch.inputs.narrow(0, 2, 2)));
  EXPECT_TRUE(parts[1].targets.equal(batch.targets.narrow(0, 2, 2)));
  EXPECT_TRUE(parts[1].inputs.is_alias_of(batch.inputs));
}

TEST(MicrobatchesTest, ABatchWithoutTensorsKeepsItsSizes) {
  Batch batch;
  batch.size = 5;
  const std::vector<Batch> parts = SplitBatch(batch, {3, 2});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].size, 2);
  EXPECT_FALSE(parts[1].inputs.defined());
}

// ({"mask": [5, 1], "scale": 2.0}, [[5, 2], [5, 3]], "text")
IValue Tree() {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("mask", Rows(5, 1));
  dict.insert("scale", 2.0);
  const c10::List<at::Tensor> list({Rows(5, 2), Rows(5, 3)});
  return c10::ivalue::Tuple::create({dict, list, "text"});
}

TEST(MicrobatchesTest, TuplesListsAndDictsAreCut) {
  const auto parts = SplitValue(Tree(), {2, 3});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  const auto& second = (*parts)[1].toTupleRef().elements();
  const auto dict = second[0].toGenericDict();
  EXPECT_TRUE(dict.at("mask").toTensor().equal(Rows(5, 1).narrow(0, 2, 3)));
  EXPECT_EQ(dict.at("scale").toDouble(), 2.0);
  EXPECT_TRUE(second[1].toTensorVector()[1].equal(Rows(5, 3).narrow(0, 2, 3)));
  EXPECT_EQ(second[2].toStringRef(), "text");
}

TEST(MicrobatchesTest, WhatWasCutIsPutTogether) {
  const auto parts = SplitValue(Tree(), {1, 3, 1});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto whole = JoinValues(*parts);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto& elements = whole->toTupleRef().elements();
  const auto dict = elements[0].toGenericDict();
  EXPECT_TRUE(dict.at("mask").toTensor().equal(Rows(5, 1)));
  EXPECT_EQ(dict.at("scale").toDouble(), 2.0);
  EXPECT_TRUE(elements[1].toTensorVector()[0].equal(Rows(5, 2)));
  EXPECT_EQ(elements[2].toStringRef(), "text");
}

TEST(MicrobatchesTest, UndefinedTensorsStayUndefined) {
  const auto parts = SplitValue(at::Tensor(), {2, 3});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_FALSE((*parts)[1].toTensor().defined());
}

TEST(MicrobatchesTest, SaysWhichTensorDoesNotFit) {
  EXPECT_EQ(std::string(SplitValue(Tree(), {2, 4}).status().message()),
            "a batch of 6 samples has Long [5, 1] at [0]['mask'], whose "
            "dimension 0 does not count the samples");
  EXPECT_EQ(SplitValue(at::arange(3).sum(), {3}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MicrobatchesTest, PartsMustBeAlike) {
  EXPECT_FALSE(JoinValues({}).ok());
  EXPECT_FALSE(JoinValues({Rows(1, 1), IValue(1)}).ok());
  EXPECT_FALSE(JoinValues({Tree(), Rows(1, 1)}).ok());
  EXPECT_FALSE(JoinValues({Rows(1, 1), Rows(1, 2)}).ok());
}

}  // namespace
}  // namespace tandem
