#include "core/checkpoint/stored_tensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/row_parts.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem::stored_tensors_test {
namespace {

// [5, 2] as rows 0 to 2 and 3 to 4.
RowParts Parts() {
  return {{"head.0.weight", {"head.weight", 0, 3, 5}},
          {"head.1.weight", {"head.weight", 3, 2, 5}}};
}

at::Tensor Whole(double first) {
  return at::arange(first, first + 10).view({5, 2});
}

NamedTensors Read(const StoredTensors& stored) {
  NamedTensors tensors;
  for (const StoredTensor& each : stored) {
    const auto values = each.read();
    EXPECT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(values->sizes(), each.info.sizes);
    tensors.emplace_back(each.info.name, *values);
  }
  return tensors;
}

TEST(RowPartsTest, NamesAreFoundOfEveryKind) {
  const RowParts parts = Parts();
  const auto whole = [&](const char* name) {
    const auto found = FindPart(name, parts);
    return found ? found->whole : "";
  };
  EXPECT_EQ(whole("head.1.weight"), "head.weight");
  EXPECT_EQ(whole("head.1.weight.exp_avg"), "head.weight.exp_avg");
  EXPECT_EQ(whole("optimizer.head.0.weight.step"),
            "optimizer.head.weight.step");
  EXPECT_EQ(whole("head.1.weights"), "");
  EXPECT_EQ(whole("body.weight"), "");
}

TEST(RowPartsTest, WhatIsStoredIsDivided) {
  const NamedTensors divided =
      Read(DivideRows({{"body.weight", Whole(7)},
                       {"head.weight", Whole(20)},
                       {"head.weight.exp_avg", Whole(40)},
                       {"head.weight.step", at::scalar_tensor(3)}},
                      Parts()));
  ASSERT_EQ(divided.size(), 7u);
  EXPECT_EQ(divided[1].first, "head.0.weight");
  EXPECT_TRUE(divided[1].second.equal(Whole(20).narrow(0, 0, 3)));
  EXPECT_EQ(divided[2].first, "head.1.weight");
  EXPECT_TRUE(divided[2].second.equal(Whole(20).narrow(0, 3, 2)));
  EXPECT_EQ(divided[4].first, "head.1.weight.exp_avg");
  EXPECT_TRUE(divided[4].second.equal(Whole(40).narrow(0, 3, 2)));
  EXPECT_EQ(divided[6].first, "head.1.weight.step");
  EXPECT_EQ(divided[6].second.item<double>(), 3);
}

TEST(RowPartsTest, APartIsNotReadAsTheWhole) {
  StoredTensor whole;
  whole.info = MakeTensorInfo("head.weight", Whole(20));
  whole.read = []() -> absl::StatusOr<at::Tensor> { return Whole(20); };
  whole.read_into = [](const at::Tensor&) -> absl::StatusOr<bool> {
    ADD_FAILURE() << "of the whole";
    return true;
  };
  StoredTensors stored;
  stored.Add(whole);
  const StoredTensors divided = DivideRows(stored, Parts());
  ASSERT_EQ(divided.size(), 2u);
  const at::Tensor target = at::zeros({3, 2});
  ASSERT_TRUE(ReadInto(*divided.begin(), target).ok());
  EXPECT_TRUE(target.equal(Whole(20).narrow(0, 0, 3)));
}

TEST(RowPartsTest, AWeightOfAnotherSizeIsLeftToBeRefused) {
  const StoredTensors divided =
      DivideRows({{"head.weight", at::arange(8.).view({4, 2})}}, Parts());
  ASSERT_EQ(divided.size(), 1u);
  EXPECT_EQ(divided.begin()->info.name, "head.weight");
}

TEST(RowPartsTest, AStreamOfPartsIsOneOfWholeWeights) {
  const RowParts parts = Parts();
  CollectedTensors collected;
  JoinedRows joined(parts, collected);
  ASSERT_TRUE(
      StreamTensors({{"head.1.weight", Whole(20).narrow(0, 3, 2)},
                     {"optimizer.head.1.weight.step", at::scalar_tensor(3)},
                     {"body.weight", Whole(7)},
                     {"optimizer.head.0.weight.step", at::scalar_tensor(3)},
                     {"head.0.weight", Whole(20).narrow(0, 0, 3)}},
                    joined)
          .ok());
  ASSERT_EQ(collected.tensors.size(), 3u);
  EXPECT_EQ(collected.tensors[0].first, "body.weight");
  EXPECT_TRUE(collected.tensors[0].second.equal(Whole(7)));
  EXPECT_EQ(collected.tensors[1].first, "head.weight");
  EXPECT_TRUE(collected.tensors[1].second.equal(Whole(20)));
  EXPECT_EQ(collected.tensors[2].first, "optimizer.head.weight.step");
  EXPECT_EQ(collected.tensors[2].second.dim(), 0);
}

// Counts which way its values are taken.
class Source {
 public:
  StoredTensor Stored() {
    StoredTensor stored;
    stored.info = MakeTensorInfo("w", values_);
    stored.read = [this]() -> absl::StatusOr<at::Tensor> {
      ++read;
      return values_;
    };
    stored.read_into =
        [this](const at::Tensor& target) -> absl::StatusOr<bool> {
      ++asked;
      if (!target.is_contiguous()) return false;
      std::memcpy(target.mutable_data_ptr(), values_.const_data_ptr(),
                  values_.nbytes());
      return true;
    };
    return stored;
  }
  const at::Tensor& values() const { return values_; }

  int read = 0;
  int asked = 0;

 private:
  const at::Tensor values_ = at::arange(6, at::kFloat).view({2, 3});
};

TEST(ReadIntoTest, GoesStraightToWhereValuesLieAsStored) {
  Source source;
  const at::Tensor target = at::zeros({2, 3});
  const auto version = target.unsafeGetTensorImpl()->version_counter();
  const auto before = version.current_version();
  ASSERT_TRUE(ReadInto(source.Stored(), target).ok());
  EXPECT_TRUE(at::equal(target, source.values()));
  EXPECT_EQ(source.read, 0);
  EXPECT_EQ(version.current_version(), before + 1);
}

TEST(ReadIntoTest, ConvertsAndMovesWhatLiesOtherwise) {
  Source source;
  const at::Tensor turned = at::zeros({3, 2}).t();
  ASSERT_TRUE(ReadInto(source.Stored(), turned).ok());
  EXPECT_TRUE(at::equal(turned, source.values()));
  EXPECT_EQ(source.asked, 1);
  EXPECT_EQ(source.read, 1);
  // Nobody is asked for values of another dtype.
  const at::Tensor halves = at::zeros({2, 3}, at::kBFloat16);
  ASSERT_TRUE(ReadInto(source.Stored(), halves).ok());
  EXPECT_TRUE(at::equal(halves, source.values().to(at::kBFloat16)));
  EXPECT_EQ(source.asked, 1);
  EXPECT_EQ(source.read, 2);
}

TEST(ReadIntoTest, AnErrorIsTheStores) {
  Source source;
  StoredTensor broken = source.Stored();
  broken.read_into = [](const at::Tensor&) -> absl::StatusOr<bool> {
    return absl::DataLossError("torn");
  };
  EXPECT_TRUE(absl::IsDataLoss(ReadInto(broken, at::zeros({2, 3}))));
  broken.read = [] { return absl::DataLossError("torn"); };
  EXPECT_TRUE(
      absl::IsDataLoss(ReadInto(broken, at::zeros({2, 3}, at::kDouble))));
}

TEST(ReadIntoTest, TensorsInMemoryAreCopied) {
  Source source;
  const StoredTensors stored = {{"w", source.values()}};
  const at::Tensor target = at::zeros({2, 3});
  ASSERT_TRUE(ReadInto(*stored.begin(), target).ok());
  EXPECT_TRUE(at::equal(target, source.values()));
}

}  // namespace
}  // namespace tandem::stored_tensors_test
