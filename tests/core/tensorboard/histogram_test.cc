#include "core/tensorboard/histogram.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "core/testing/statuses.h"

namespace tandem::histogram_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor Values(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

Histogram HistogramOf(const at::Tensor& values) {
  const absl::StatusOr<Histogram> histogram = ValueHistogram(values);
  if (!histogram.ok()) {
    ADD_FAILURE() << histogram.status();
    return {};
  }
  return *histogram;
}

// 1e-12 times 1.1, so often, as SummaryWriter multiplies it.
double Edge(int number) {
  double edge = 1e-12;
  for (int i = 0; i < number; ++i) edge *= 1.1;
  return edge;
}

// Each value has the bucket that its limits say, and no other has any.
void ExpectBucketsOf(const std::vector<double>& values) {
  const Histogram histogram = HistogramOf(Values(values));
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  ASSERT_GE(histogram.limits.size(), 2u);
  EXPECT_EQ(histogram.counts.front(), 0);
  EXPECT_GT(histogram.counts[1], 0);
  EXPECT_GT(histogram.counts.back(), 0);
  int64_t count = 0;
  for (size_t i = 1; i < histogram.limits.size(); ++i) {
    const double left = histogram.limits[i - 1], right = histogram.limits[i];
    ASSERT_LT(left, right);
    int64_t expected = 0;
    for (const double value : values) {
      const bool is_last_of_all = right == DBL_MAX && value == DBL_MAX;
      expected += (left <= value && value < right) || is_last_of_all;
    }
    EXPECT_EQ(histogram.counts[i], expected) << left << " to " << right;
    count += histogram.counts[i];
  }
  EXPECT_EQ(count, static_cast<int64_t>(values.size()));
  EXPECT_EQ(histogram.count, count);
}

TEST(HistogramTest, OfOneValueHasItsBucket) {
  const Histogram one = HistogramOf(Values({1}));
  EXPECT_THAT(one.limits, ElementsAre(Edge(289), Edge(290)));
  EXPECT_THAT(one.counts, ElementsAre(0, 1));
  EXPECT_LT(Edge(289), 1);
  EXPECT_GT(Edge(290), 1);
  EXPECT_EQ(one.min, 1);
  EXPECT_EQ(one.max, 1);
  EXPECT_EQ(one.sum, 1);
  EXPECT_EQ(one.sum_of_squares, 1);
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.nonfinite, 0);
}

TEST(HistogramTest, AnEdgeIsOfTheBucketOnItsRight) {
  EXPECT_THAT(HistogramOf(Values({Edge(290)})).limits,
              ElementsAre(Edge(290), Edge(291)));
  EXPECT_THAT(HistogramOf(Values({-Edge(290)})).limits,
              ElementsAre(-Edge(290), -Edge(289)));
}

TEST(HistogramTest, ZerosAreOfTheBucketBesideZero) {
  const Histogram zeros = HistogramOf(at::zeros({3, 5}));
  EXPECT_THAT(zeros.limits, ElementsAre(0, 1e-12));
  EXPECT_THAT(zeros.counts, ElementsAre(0, 15));
  EXPECT_EQ(HistogramOf(Values({-0.0})).counts,
            HistogramOf(Values({0})).counts);
}

TEST(HistogramTest, EqualValuesHaveOneBucket) {
  const Histogram equal = HistogramOf(at::full({7}, -2.5));
  EXPECT_THAT(equal.counts, ElementsAre(0, 7));
  EXPECT_EQ(equal.min, -2.5);
  EXPECT_EQ(equal.max, -2.5);
  EXPECT_EQ(equal.sum, -17.5);
  EXPECT_EQ(equal.sum_of_squares, 43.75);
}

TEST(HistogramTest, EveryFiniteValueHasABucket) {
  ExpectBucketsOf({-1, 0, 0, 1, 2.5, 1e-30, -1e-30, 1e-12, -1e-12});
  ExpectBucketsOf({1e19, 1e20, 1e21, -1e21, 1e300, DBL_MAX, -DBL_MAX});
  ExpectBucketsOf({-1e300});
  ExpectBucketsOf({DBL_MAX});
  ExpectBucketsOf({5e-324, -5e-324});
}

TEST(HistogramTest, WhatIsNotFiniteIsCountedApart) {
  const Histogram some =
      HistogramOf(Values({std::nan(""), 1, kInfinity, -kInfinity, 3}));
  EXPECT_EQ(some.nonfinite, 3);
  EXPECT_EQ(some.count, 2);
  EXPECT_EQ(some.min, 1);
  EXPECT_EQ(some.max, 3);
  EXPECT_EQ(some.sum, 4);
  EXPECT_EQ(some.sum_of_squares, 10);
  const Histogram none = HistogramOf(Values({std::nan(""), kInfinity}));
  EXPECT_EQ(none.nonfinite, 2);
  EXPECT_EQ(none.count, 0);
  EXPECT_THAT(none.limits, IsEmpty());
  EXPECT_THAT(none.counts, IsEmpty());
}

TEST(HistogramTest, TakesAnyRealNumbersInAnyOrder) {
  const at::Tensor values = at::arange(-6, 7);
  const Histogram expected = HistogramOf(values.to(at::kDouble));
  EXPECT_EQ(expected.count, 13);
  for (const auto dtype :
       {at::kLong, at::kInt, at::kFloat, at::kHalf, at::kBFloat16, at::kChar}) {
    const Histogram found = HistogramOf(values.to(dtype));
    EXPECT_EQ(found.counts, expected.counts) << dtype;
    EXPECT_EQ(found.limits, expected.limits) << dtype;
    EXPECT_EQ(found.sum_of_squares, expected.sum_of_squares) << dtype;
  }
  EXPECT_EQ(HistogramOf(values.gt(4)).sum, 2);
  const at::Tensor turned = values.slice(0, 1).view({3, 4}).t();
  EXPECT_EQ(HistogramOf(turned).counts, HistogramOf(values.slice(0, 1)).counts);
  EXPECT_EQ(HistogramOf(at::scalar_tensor(2.0)).count, 1);
  EXPECT_EQ(HistogramOf(at::ones({3}).requires_grad_(true)).count, 3);
}

// More than are converted at a time, a prime number of them.
TEST(HistogramTest, OfManyValuesHasTheSameSumsForAnyNumberOfThreads) {
  at::manual_seed(1);
  const at::Tensor values = at::randn({1200007}, at::kDouble) * 1e-3;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Histogram alone = HistogramOf(values);
  at::set_num_threads(3);
  const Histogram together = HistogramOf(values);
  at::set_num_threads(threads);
  EXPECT_EQ(alone.counts, together.counts);
  EXPECT_EQ(alone.sum, together.sum);
  EXPECT_EQ(alone.sum_of_squares, together.sum_of_squares);
  EXPECT_EQ(alone.count, 1200007);
  EXPECT_EQ(alone.min, values.min().item<double>());
  EXPECT_EQ(alone.max, values.max().item<double>());
  EXPECT_NEAR(alone.sum, values.sum().item<double>(), 1e-9);
  const at::Tensor edges = Values(alone.limits);
  const at::Tensor expected =
      at::bucketize(values, edges, /*out_int32=*/false, /*right=*/true)
          .bincount({}, static_cast<int64_t>(alone.limits.size()));
  for (size_t i = 0; i < alone.counts.size(); ++i) {
    EXPECT_EQ(alone.counts[i],
              expected[static_cast<int64_t>(i)].item<int64_t>())
        << i;
  }
}

// Whatever parts the values come in.
TEST(HistogramTest, MergedPartsAreTheWhole) {
  const std::vector<double> values = {-3,    0.5,  kInfinity, 0,    7e18, -1e-9,
                                      0.125, 0.25, -0.5,      1e-3, 4,    -64};
  const Histogram whole = HistogramOf(Values(values));
  for (size_t cut = 1; cut < values.size(); ++cut) {
    const Histogram merged =
        Merged(HistogramOf(Values({values.begin(), values.begin() + cut})),
               HistogramOf(Values({values.begin() + cut, values.end()})));
    EXPECT_EQ(merged.limits, whole.limits) << cut;
    EXPECT_EQ(merged.counts, whole.counts) << cut;
    EXPECT_EQ(merged.count, 11) << cut;
    EXPECT_EQ(merged.nonfinite, 1) << cut;
    EXPECT_EQ(merged.min, whole.min) << cut;
    EXPECT_EQ(merged.max, whole.max) << cut;
    EXPECT_DOUBLE_EQ(merged.sum, whole.sum) << cut;
    EXPECT_DOUBLE_EQ(merged.sum_of_squares, whole.sum_of_squares) << cut;
  }
}

TEST(HistogramTest, NothingIsMergedWithoutAChange) {
  const Histogram none = HistogramOf(Values({kInfinity}));
  const Histogram some = HistogramOf(Values({1, 2}));
  for (const Histogram& merged :
       {Merged(none, some), Merged(some, none), Merged(Histogram(), some)}) {
    EXPECT_EQ(merged.limits, some.limits);
    EXPECT_EQ(merged.counts, some.counts);
    EXPECT_EQ(merged.count, 2);
  }
  EXPECT_EQ(Merged(none, none).nonfinite, 2);
  EXPECT_THAT(Merged(none, none).limits, IsEmpty());
}

TEST(HistogramTest, OtherTensorsAreRefused) {
  const auto refusal = [](const at::Tensor& values) {
    return ValueHistogram(values).status();
  };
  EXPECT_THAT(refusal(at::Tensor()), InvalidArgument("is undefined"));
  EXPECT_THAT(refusal(at::empty({0, 3})), InvalidArgument("no elements"));
  EXPECT_THAT(refusal(at::ones({2}, at::kComplexFloat)),
              InvalidArgument("complex"));
  EXPECT_THAT(refusal(at::ones({2}).to_sparse()), InvalidArgument("not dense"));
  EXPECT_THAT(refusal(at::empty({2}, at::device(at::kMeta))),
              InvalidArgument("meta"));
}

}  // namespace
}  // namespace tandem::histogram_test
