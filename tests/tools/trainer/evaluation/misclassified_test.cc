#include "tools/trainer/evaluation/misclassified.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/image_codec/image_codec.h"
#include "core/model/layer_list.h"
#include "core/tensorboard/event_writer.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/layers/basic_layers.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/core/testing/test_files.h"

namespace tandem::misclassified_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Images of 2 x 2 pixels, of which one is white: of sample i pixel i modulo 4.
// Targets are the same, but for samples that are given others.
class Corners : public Dataset {
 public:
  Corners(int64_t size, std::map<int64_t, int64_t> others,
          at::ScalarType of_targets = at::kLong)
      : size_(size), others_(std::move(others)), of_targets_(of_targets) {}

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return {1, 2, 2}; }
  int64_t classes() const override { return 4; }
  std::string ClassName(int64_t number) const override {
    return number < 3 ? absl::StrCat("corner|", number) : "";
  }
  std::vector<PixelStatistics> pixels() const override { return {{0.5, 0.5}}; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    Batch batch;
    batch.size = static_cast<int64_t>(indices.size());
    batch.inputs = at::zeros({batch.size, 1, 2, 2}).sub(1);
    batch.targets = at::zeros({batch.size}, of_targets_);
    for (int64_t i = 0; i < batch.size; ++i) {
      const int64_t sample = indices[static_cast<size_t>(i)];
      read_ = std::max(read_, sample + 1);
      batch.inputs[i].view({4})[sample % 4] = 1;
      const auto other = others_.find(sample);
      batch.targets[i] = other == others_.end() ? sample % 4 : other->second;
    }
    return batch;
  }

  int64_t read() const { return read_; }

 private:
  const int64_t size_;
  const std::map<int64_t, int64_t> others_;
  const at::ScalarType of_targets_;
  mutable int64_t read_ = 0;
};

// The greatest pixel's number is the class.
const LayerList& Brightest() {
  static const auto* const layers =
      new LayerList(MakeLayers({FlattenLayer("flatten")}, /*seed=*/0));
  return *layers;
}

std::vector<Misclassified> Found(const Dataset& data, int64_t samples,
                                 int64_t most) {
  auto found = FindMisclassified(Brightest(), data, samples, most);
  EXPECT_TRUE(found.ok()) << found.status();
  return std::move(found).value_or(std::vector<Misclassified>());
}

std::vector<int64_t> Numbers(const std::vector<Misclassified>& found) {
  std::vector<int64_t> numbers;
  for (const Misclassified& each : found) numbers.push_back(each.sample);
  return numbers;
}

TEST(FindMisclassifiedTest, AreTheFirstOnesInTheDataSetsOrder) {
  const std::map<int64_t, int64_t> others = {
      {3, 0}, {31, 1}, {32, 2}, {70, 0}, {99, 1}};
  for (const int64_t most : {1, 3, 5, 9}) {
    const Corners data(100, others);
    const std::vector<Misclassified> found = Found(data, 100, most);
    std::vector<int64_t> expected = {3, 31, 32, 70, 99};
    expected.resize(static_cast<size_t>(std::min<int64_t>(most, 5)));
    EXPECT_EQ(Numbers(found), expected);
    for (const Misclassified& each : found) {
      EXPECT_EQ(each.target, others.at(each.sample));
      EXPECT_EQ(each.predicted, each.sample % 4);
      EXPECT_EQ(each.input.sizes(), at::IntArrayRef({1, 2, 2}));
      EXPECT_EQ(each.input.view({4}).argmax().item<int64_t>(), each.predicted);
    }
  }
}

TEST(FindMisclassifiedTest, WhatComesBehindIsNotLookedAt) {
  const Corners data(1000, {{3, 0}, {70, 0}});
  Found(data, 1000, 1);
  EXPECT_LT(data.read(), 100);
  EXPECT_THAT(Numbers(Found(Corners(1000, {{3, 0}, {70, 0}}), 70, 9)),
              ElementsAre(3));
  const Corners few(1000, {{70, 0}});
  EXPECT_THAT(Found(few, 70, 9), IsEmpty());
  EXPECT_EQ(few.read(), 70);
}

TEST(FindMisclassifiedTest, ASampleWithoutAClassIsNone) {
  EXPECT_THAT(Numbers(Found(Corners(8, {{2, kNoTarget}, {6, 1}}), 8, 9)),
              ElementsAre(6));
}

TEST(FindMisclassifiedTest, AModelWithoutALogitForEachClassIsRefused) {
  const Corners data(8, {});
  EXPECT_THAT(FindMisclassified(LayerList(), data, 1, 1).status(),
              InvalidArgument("gives [1, 1, 2, 2] for 1 images",
                              "a logit for each class"));
}

TEST(FindMisclassifiedTest, ClassesOfAnotherTypeAreRefused) {
  const Corners data(8, {}, at::kFloat);
  EXPECT_THAT(FindMisclassified(Brightest(), data, 8, 1).status(),
              InvalidArgument("targets Float [8]", "Long"));
}

ReadEvent SummaryOf(const std::vector<Misclassified>& found,
                    const Dataset& data) {
  const auto summary = MisclassifiedSummary(found, data);
  EXPECT_TRUE(summary.ok()) << summary.status();
  const std::string folder = NewTestFolder("misclassified");
  const auto writer = EventWriter::Create(folder);
  EXPECT_TRUE(writer.ok()) << writer.status();
  ExpectOk((*writer)->AddSummary(*summary, 7));
  ExpectOk((*writer)->Flush());
  return EventsIn(folder).back();
}

TEST(MisclassifiedSummaryTest, HasEachImageAndBothClassesNames) {
  const Corners data(8, {{2, 3}, {5, 0}});
  const ReadEvent event = SummaryOf(Found(data, 8, 9), data);
  EXPECT_EQ(event.step, 7);
  EXPECT_EQ(event.texts.at("misclassified"),
            "| image | sample | class | predicted |\n|---|---|---|---|\n"
            "| 1 | 2 | 3 | corner\\|2 |\n"
            "| 2 | 5 | corner\\|0 | corner\\|1 |\n");
  ASSERT_EQ(event.images.size(), 2u);
  const auto first = DecodeImage(event.images.at("misclassified/1"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(at::equal((*first)[0],
                        at::tensor({0, 0, 255, 0}, at::kByte).view({2, 2})));
  const auto second = DecodeImage(event.images.at("misclassified/2"));
  EXPECT_TRUE(at::equal((*second)[0],
                        at::tensor({0, 255, 0, 0}, at::kByte).view({2, 2})));
}

TEST(MisclassifiedSummaryTest, SaysThatThereIsNone) {
  const Corners data(8, {});
  const ReadEvent event = SummaryOf(Found(data, 8, 9), data);
  EXPECT_EQ(event.texts.at("misclassified"), "No sample is misclassified.");
  EXPECT_THAT(event.images, IsEmpty());
}

}  // namespace
}  // namespace tandem::misclassified_test
