#include "parallel/pipeline/microbatches.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::microbatches_test {
namespace {

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
  const auto parts = SplitBatch(batch, {2, 2, 1});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[2].size, 1);
  const Batch& middle = (*parts)[1];
  EXPECT_TRUE(middle.inputs.equal(batch.inputs.narrow(0, 2, 2)));
  EXPECT_TRUE(middle.targets.equal(batch.targets.narrow(0, 2, 2)));
  EXPECT_TRUE(middle.inputs.is_alias_of(batch.inputs));
  EXPECT_TRUE(middle.further_inputs.empty());
}

TEST(MicrobatchesTest, ABatchWithoutTensorsKeepsItsSizes) {
  Batch batch;
  batch.size = 5;
  batch.further_inputs["mask"] = at::Tensor();
  const auto parts = SplitBatch(batch, {3, 2});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 2u);
  const Batch& last = (*parts)[1];
  EXPECT_EQ(last.size, 2);
  EXPECT_FALSE(last.inputs.defined());
  EXPECT_FALSE(last.further_inputs.at("mask").toTensor().defined());
}

// "mask": [5, 1]; "views": ({"left": [5, 2]}, [[5, 2], [5, 3]])
Batch WithFurtherInputs() {
  Batch batch = {Rows(5, 2), at::arange(5), 5};
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert("left", Rows(5, 2));
  const c10::List<at::Tensor> list({Rows(5, 2), Rows(5, 3)});
  batch.further_inputs["mask"] = Rows(5, 1);
  batch.further_inputs["views"] = c10::ivalue::Tuple::create({dict, list});
  return batch;
}

TEST(MicrobatchesTest, TuplesListsAndDictsAreCut) {
  const auto parts = SplitBatch(WithFurtherInputs(), {1, 3, 1});
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  int64_t first = 0;
  for (const Batch& part : *parts) {
    const auto rows = [&](int64_t width) {
      return Rows(5, width).narrow(0, first, part.size);
    };
    EXPECT_TRUE(part.further_inputs.at("mask").toTensor().equal(rows(1)));
    const auto& views = part.further_inputs.at("views").toTupleRef().elements();
    EXPECT_TRUE(views[0].toGenericDict().at("left").toTensor().equal(rows(2)));
    EXPECT_TRUE(views[1].toTensorVector()[0].equal(rows(2)));
    EXPECT_TRUE(views[1].toTensorVector()[1].equal(rows(3)));
    first += part.size;
  }
  EXPECT_EQ(first, 5);
}

TEST(MicrobatchesTest, FurtherTargetsAreCutLikeFurtherInputs) {
  Batch batch = {Rows(5, 2), at::arange(5), 5};
  batch.further_targets["boxes"] =
      c10::ivalue::Tuple::create({Rows(5, 2), Rows(5, 3)});
  const auto parts = SplitBatch(batch, {2, 3});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto& boxes =
      parts->back().further_targets.at("boxes").toTupleRef().elements();
  EXPECT_TRUE(boxes[1].toTensor().equal(Rows(5, 3).narrow(0, 2, 3)));
  batch.further_targets["kinds"] = at::arange(4);
  EXPECT_EQ(SplitBatch(batch, {2, 3}).status().message(),
            "a batch of 5 samples has Long [4] as 'kinds', whose dimension 0 "
            "does not count them");
}

TEST(MicrobatchesTest, SaysWhichTensorDoesNotFit) {
  const auto said = [](const Batch& batch) {
    const absl::Status status = SplitBatch(batch, {2, 3}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  Batch batch = WithFurtherInputs();
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert("left", Rows(4, 2));
  batch.further_inputs["views"] = c10::ivalue::Tuple::create({dict, dict});
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [4, 2] as 'views[0]['left']', whose "
            "dimension 0 does not count them");
  batch = WithFurtherInputs();
  batch.further_inputs["mask"] = at::arange(5).sum();
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [] as 'mask', whose dimension 0 "
            "does not count them");
  batch = WithFurtherInputs();
  batch.inputs = Rows(6, 1);
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [6, 1] as 'inputs', whose dimension "
            "0 does not count them");
  batch = WithFurtherInputs();
  batch.targets = at::arange(4);
  EXPECT_EQ(said(batch),
            "a batch of 5 samples has Long [4] as 'targets', whose dimension 0 "
            "does not count them");
}

}  // namespace
}  // namespace tandem::microbatches_test
