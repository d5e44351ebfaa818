#include "core/fused/dropout_add.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/random/random.h"

namespace tandem::dropout_add_test {
namespace {

constexpr uint64_t kKey = 0x123456789ABCDEF0;
// The greatest that has samples behind it, and of more than 32 bits.
constexpr int64_t kFirst = (int64_t{1} << 32) - 2;

// One number at a time.
at::Tensor Mask(at::IntArrayRef sizes, const DropoutDraws& draws) {
  const at::Tensor mask = at::empty(sizes, at::kFloat);
  const int64_t rows = mask.size(0);
  const int64_t columns = rows == 0 ? 0 : mask.numel() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    const auto sample = static_cast<uint64_t>(draws.first_sample + row);
    for (int64_t i = 0; i < columns; ++i) {
      const PhiloxBlock words = Philox(
          {static_cast<uint32_t>(i / 4), 0, static_cast<uint32_t>(sample),
           static_cast<uint32_t>(sample >> 32)},
          {static_cast<uint32_t>(draws.key),
           static_cast<uint32_t>(draws.key >> 32)});
      const bool drops = words[i % 4] < std::ldexp(draws.p, 32);
      mask.mutable_data_ptr<float>()[row * columns + i] =
          drops ? 0 : static_cast<float>(1 / (1 - draws.p));
    }
  }
  return mask;
}

class DropoutAddTest : public testing::TestWithParam<std::vector<int64_t>> {
 protected:
  at::Tensor x_ = at::randn(GetParam());
  at::Tensor residual_ = at::randn(GetParam());
};

TEST_P(DropoutAddTest, DrawsWhatPhiloxSays) {
  for (double p : {0.1, 0.5, 1 / 3.0}) {
    const DropoutDraws draws = {kKey, kFirst, p};
    const at::Tensor mask = Mask(x_.sizes(), draws);
    EXPECT_TRUE(at::equal(DropoutAdd(x_, {}, draws), x_ * mask)) << p;
    EXPECT_TRUE(
        at::equal(DropoutAdd(x_, residual_, draws), x_ * mask + residual_))
        << p;
  }
}

TEST_P(DropoutAddTest, NoneAndAll) {
  EXPECT_TRUE(
      at::equal(DropoutAdd(x_, residual_, {kKey, 0, 0}), x_ + residual_));
  EXPECT_TRUE(at::equal(DropoutAdd(x_, residual_, {kKey, 0, 1}), residual_));
}

TEST_P(DropoutAddTest, Bf16IsTheRoundedResultOfFloats) {
  const DropoutDraws draws = {kKey, kFirst, 0.3};
  const at::Tensor x = x_.to(at::kBFloat16);
  const at::Tensor residual = residual_.to(at::kBFloat16);
  EXPECT_TRUE(
      at::equal(DropoutAdd(x, residual, draws),
                DropoutAdd(x.to(at::kFloat), residual.to(at::kFloat), draws)
                    .to(at::kBFloat16)));
}

TEST_P(DropoutAddTest, ThreadsChangeNoBits) {
  const DropoutDraws draws = {kKey, kFirst, 0.3};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = DropoutAdd(x_, residual_, draws);
  at::set_num_threads(3);
  const at::Tensor three = DropoutAdd(x_, residual_, draws);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, three));
}

using Sizes = std::vector<int64_t>;
INSTANTIATE_TEST_SUITE_P(Shapes, DropoutAddTest,
                         testing::Values(Sizes{0, 5}, Sizes{1}, Sizes{7, 13},
                                         Sizes{3, 5, 67}, Sizes{4, 20011}));

TEST(DropoutAddErrorsTest, WhatDoesNotFit) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_THROW(DropoutAdd(x, at::randn({3}), {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x, x.to(at::kDouble), {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x.to(at::kDouble), {}, {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x[0][0], {}, {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x, {}, {kKey, 0, 1.5}), c10::Error);
}

}  // namespace
}  // namespace tandem::dropout_add_test
