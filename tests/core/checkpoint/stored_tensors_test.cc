#include "core/checkpoint/stored_tensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::stored_tensors_test {
namespace {

// Counts which way its values are taken.
class Source {
 public:
  StoredTensor Stored() {
    StoredTensor stored;
    stored.info = InfoOf("w", values_);
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
