#include "core/model/shared_statistics.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/random/random.h"
#include "gtest/gtest.h"

namespace tandem::shared_statistics_test {
namespace {

// Statistics of values [n, channels], which may be none.
GatheredStatistics Of(const at::Tensor& values) {
  GatheredStatistics part;
  part.count = values.size(0);
  if (part.count == 0) return part;
  part.mean = values.mean(0);
  part.squares = (values - part.mean).square().sum(0);
  return part;
}

TEST(GatheredStatisticsTest, PartsAreTheWhole) {
  const at::Tensor values =
      at::randn({12, 3}, GeneratorFor(1, "values"), at::kDouble) + 1e4;
  GatheredStatistics sum;
  for (const at::Tensor& part : values.split_with_sizes({0, 1, 5, 0, 4, 2})) {
    Add(Of(part), &sum);
  }
  const GatheredStatistics whole = Of(values);
  EXPECT_EQ(sum.count, 12);
  EXPECT_TRUE(at::allclose(sum.mean, whole.mean, 1e-14));
  EXPECT_TRUE(at::allclose(sum.squares, whole.squares, 1e-9));
}

TEST(GatheredStatisticsTest, ASumHasMemoryOfItsOwn) {
  const GatheredStatistics part = Of(at::ones({2, 3}, at::kDouble));
  GatheredStatistics sum;
  Add(part, &sum);
  Add(Of(at::zeros({2, 3}, at::kDouble)), &sum);
  EXPECT_TRUE(at::equal(part.mean, at::ones({3}, at::kDouble)));
}

at::Tensor RunningMeanAfterTwo(std::optional<double> momentum) {
  at::Tensor mean = at::zeros({2}), variance = at::ones({2});
  at::Tensor batches = at::zeros({}, at::kLong);
  for (const double now : {4.0, 2.0}) {
    const at::Tensor values = at::full({2}, now, at::kDouble);
    UpdateRunningStatistics(values, values, momentum, mean, variance, batches);
  }
  EXPECT_EQ(batches.item<int64_t>(), 2);
  return mean;
}

TEST(GatheredStatisticsTest, RunningStatisticsMoveByMomentumOrAreMeans) {
  EXPECT_TRUE(at::equal(RunningMeanAfterTwo(0.25), at::full({2}, 1.25)));
  EXPECT_TRUE(at::equal(RunningMeanAfterTwo(std::nullopt), at::full({2}, 3.)));
}

}  // namespace
}  // namespace tandem::shared_statistics_test
