#include "core/memory/result_category.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <vector>

#include "gtest/gtest.h"

namespace tandem::result_category_test {
namespace {

TEST(ResultCategoryTest, WhatIsSaidCountsElseOther) {
  EXPECT_EQ(CategoryOfResults(), MemoryCategory::kOther);
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  EXPECT_EQ(CategoryOfResults(), MemoryCategory::kParameters);
}

TEST(ResultCategoryTest, ABackwardMakesGradientsUnlessSomethingIsSaid) {
  std::vector<MemoryCategory> seen;
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  at::Tensor y = x.mul(2);
  y.register_hook([&seen](const at::Tensor& grad) {
    seen.push_back(CategoryOfResults());
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    seen.push_back(CategoryOfResults());
    return grad;
  });
  y.sum().backward();
  EXPECT_EQ(seen, std::vector<MemoryCategory>({MemoryCategory::kGradients,
                                               MemoryCategory::kActivations}));
  EXPECT_EQ(CategoryOfResults(), MemoryCategory::kOther);
}

}  // namespace
}  // namespace tandem::result_category_test
