#include "datasets/synthetic.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::synthetic_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Dataset> Images(const SyntheticImagesOptions& options) {
  auto dataset = MakeSyntheticImages(options);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

std::unique_ptr<Dataset> Tokens(const SyntheticTokensOptions& options) {
  auto dataset = MakeSyntheticTokens(options);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

SyntheticImagesOptions Small() {
  SyntheticImagesOptions options;
  options.shape = {3, 17, 13};
  options.length = 1000;
  return options;
}

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> range(end - begin);
  std::iota(range.begin(), range.end(), begin);
  return range;
}

Batch Get(const Dataset& dataset, const std::vector<int64_t>& indices) {
  absl::StatusOr<Batch> batch = dataset.Get(indices);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return *std::move(batch);
}

bool Same(const Batch& a, const Batch& b) {
  return at::equal(a.inputs, b.inputs) && at::equal(a.targets, b.targets);
}

template <typename MakeOne>
void ExpectAFunctionOfSeedIndexAndSplit(const MakeOne& make) {
  const auto dataset = make(0, Split::kTrain);
  const Batch whole = Get(*dataset, Range(0, 8));
  const Batch some = Get(*make(0, Split::kTrain), {5, 2});
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t index = i == 0 ? 5 : 2;
    EXPECT_TRUE(at::equal(some.inputs[i], whole.inputs[index]));
    EXPECT_TRUE(at::equal(some.targets[i], whole.targets[index]));
  }
  EXPECT_FALSE(at::equal(whole.inputs[0], whole.inputs[1]));
  EXPECT_FALSE(Same(whole, Get(*make(1, Split::kTrain), Range(0, 8))));
  EXPECT_FALSE(Same(whole, Get(*make(0, Split::kTest), Range(0, 8))));
  EXPECT_EQ(dataset->Get({dataset->size()}).status().code(),
            absl::StatusCode::kOutOfRange);
  const absl::StatusOr<Batch> inputs =
      dataset->Get({5, 2}, {/*inputs=*/true, /*targets=*/false});
  EXPECT_TRUE(at::equal(inputs->inputs, some.inputs));
  EXPECT_FALSE(inputs->targets.defined());
  const absl::StatusOr<Batch> targets =
      dataset->Get({5, 2}, {/*inputs=*/false, /*targets=*/true});
  EXPECT_TRUE(at::equal(targets->targets, some.targets));
  EXPECT_FALSE(targets->inputs.defined());
  EXPECT_EQ(targets->size, 2);
}

TEST(SyntheticImagesTest, ASampleIsAFunctionOfSeedIndexAndSplit) {
  ExpectAFunctionOfSeedIndexAndSplit([](uint64_t seed, Split split) {
    SyntheticImagesOptions options = Small();
    options.seed = seed;
    options.split = split;
    return Images(options);
  });
}

TEST(SyntheticImagesTest, AnyShapeIsFilled) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {1}, {7}, {2, 3}, {1, 28, 28}, {3, 224, 224}, {2, 3, 5, 7}};
  for (const std::vector<int64_t>& shape : shapes) {
    SyntheticImagesOptions options;
    options.shape = shape;
    const auto dataset = Images(options);
    EXPECT_EQ(dataset->input_shape(), shape);
    const Batch batch = Get(*dataset, {0, 1, 2});
    std::vector<int64_t> expected = {3};
    expected.insert(expected.end(), shape.begin(), shape.end());
    EXPECT_EQ(batch.inputs.sizes().vec(), expected);
    const float* values = batch.inputs.const_data_ptr<float>();
    for (int64_t i = 0; i < batch.inputs.numel(); ++i) {
      // sqrt(3) of noise and 0.5 of pattern: memory not written would be
      // anything.
      ASSERT_LE(std::abs(values[i]), 2.2321f);
    }
  }
}

// Sorts test samples by the nearest of the classes' mean training images.
double AccuracyOfNearestMean(const SyntheticImagesOptions& options) {
  const Batch train = Get(*Images(options), Range(0, options.length));
  SyntheticImagesOptions test_options = options;
  test_options.split = Split::kTest;
  const Batch test = Get(*Images(test_options), Range(0, 200));
  const int64_t size = train.inputs[0].numel();
  std::vector<std::vector<double>> means(options.classes,
                                         std::vector<double>(size));
  std::vector<int64_t> counts(options.classes);
  const float* inputs = train.inputs.const_data_ptr<float>();
  const int64_t* targets = train.targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < train.size; ++i) ++counts[targets[i]];
  for (int64_t i = 0; i < train.size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      means[targets[i]][j] += inputs[i * size + j] / counts[targets[i]];
    }
  }
  inputs = test.inputs.const_data_ptr<float>();
  targets = test.targets.const_data_ptr<int64_t>();
  int64_t correct = 0;
  for (int64_t i = 0; i < test.size; ++i) {
    std::vector<double> distances;
    for (const std::vector<double>& mean : means) {
      double distance = 0;
      for (int64_t j = 0; j < size; ++j) {
        distance += std::pow(inputs[i * size + j] - mean[j], 2);
      }
      distances.push_back(distance);
    }
    const auto nearest = std::min_element(distances.begin(), distances.end());
    correct += nearest - distances.begin() == targets[i];
  }
  return static_cast<double>(correct) / test.size;
}

TEST(SyntheticImagesTest, WhatIsLearntFromTrainingHoldsForTesting) {
  EXPECT_GT(AccuracyOfNearestMean(Small()), 0.95);
}

TEST(SyntheticImagesTest, EveryClassOccurs) {
  const Batch batch = Get(*Images(Small()), Range(0, 1000));
  std::map<int64_t, int64_t> counts;
  const int64_t* targets = batch.targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < 1000; ++i) ++counts[targets[i]];
  ASSERT_EQ(counts.size(), 10);
  for (const auto& [label, count] : counts) {
    EXPECT_NEAR(count, 100, 40) << label;
  }
}

TEST(SyntheticImagesTest, RefusesWhatMakesNoSense) {
  const auto error = [](std::vector<int64_t> shape, int64_t classes,
                        int64_t length) {
    return std::string(
        MakeSyntheticImages({shape, classes, length}).status().message());
  };
  EXPECT_THAT(error({3, 0, 2}, 10, 1), HasSubstr("[3, 0, 2]"));
  EXPECT_THAT(error({1 << 20, 1 << 20, 1 << 24}, 10, 1),
              HasSubstr("at most 2147483648"));
  EXPECT_THAT(error({3}, 0, 1), HasSubstr("0 classes"));
  EXPECT_THAT(error({3}, 1, -1), HasSubstr("-1 samples"));
}

TEST(SyntheticTokensTest, ASampleIsAFunctionOfSeedIndexAndSplit) {
  ExpectAFunctionOfSeedIndexAndSplit([](uint64_t seed, Split split) {
    SyntheticTokensOptions options;
    options.seed = seed;
    options.split = split;
    return Tokens(options);
  });
}

TEST(SyntheticTokensTest, TargetsAreTheInputsOneTokenLater) {
  SyntheticTokensOptions options;
  options.vocabulary = 17;
  options.context = 9;
  const Batch batch = Get(*Tokens(options), {3, 4});
  EXPECT_THAT(batch.inputs.sizes().vec(), ElementsAre(2, 9));
  EXPECT_TRUE(
      at::equal(batch.inputs.narrow(1, 1, 8), batch.targets.narrow(1, 0, 8)));
  EXPECT_EQ(batch.inputs.scalar_type(), at::kLong);
  EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
}

// How often (input, target) occurs.
std::map<int64_t, std::map<int64_t, int64_t>> Pairs(
    const SyntheticTokensOptions& options) {
  const Batch batch = Get(*Tokens(options), Range(0, 500));
  std::map<int64_t, std::map<int64_t, int64_t>> pairs;
  const int64_t* inputs = batch.inputs.const_data_ptr<int64_t>();
  const int64_t* targets = batch.targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.inputs.numel(); ++i) {
    ++pairs[inputs[i]][targets[i]];
  }
  return pairs;
}

TEST(SyntheticTokensTest, ATokensSuccessorIsLearnableAndHoldsForTesting) {
  SyntheticTokensOptions options;
  auto train = Pairs(options);
  options.split = Split::kTest;
  int64_t right = 0, all = 0;
  for (const auto& [token, followers] : Pairs(options)) {
    const auto& known = train[token];
    const auto usual = std::max_element(
        known.begin(), known.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [follower, count] : followers) {
      all += count;
      if (follower == usual->first) right += count;
    }
  }
  EXPECT_EQ(train.size(), 256);
  EXPECT_EQ(all, 500 * 128);
  EXPECT_NEAR(static_cast<double>(right) / all, 7.0 / 8, 0.01);
}

TEST(SyntheticTokensTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(MakeSyntheticTokens({0, 128, 1}).status(), Says("vocabulary 0"));
  EXPECT_THAT(MakeSyntheticTokens({256, 0, 1}).status(), Says("context 0"));
  EXPECT_THAT(MakeSyntheticTokens({256, 128, -2}).status(), Says("length -2"));
}

}  // namespace
}  // namespace tandem::synthetic_test
