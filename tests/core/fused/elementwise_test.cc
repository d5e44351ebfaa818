#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/device/host_resources.h"
#include "core/fused/bias_gelu.h"
#include "core/fused/dropout_add.h"
#include "core/fused/row_major_gemm.h"
#include "core/random/random.h"

namespace tandem::elementwise_test {
namespace {

constexpr double kUnit = 0x1p-23;

const char* NameOf(GeluForm form) {
  return form == GeluForm::kTanh ? "tanh" : "none";
}

struct Case {
  std::vector<int64_t> sizes;
  GeluForm form;
};

std::string Name(const testing::TestParamInfo<Case>& info) {
  std::string name = NameOf(info.param.form);
  for (int64_t size : info.param.sizes) name += "_" + std::to_string(size);
  return name;
}

class BiasGeluTest : public testing::TestWithParam<Case> {
 protected:
  // Values up to about 15.
  at::Tensor x_ = at::randn(GetParam().sizes) * 4;
  at::Tensor bias_ = at::randn({GetParam().sizes.back()});
  at::Tensor dy_ = at::randn(GetParam().sizes);
};

// The value in doubles, by LibTorch.
at::Tensor ExactValue(const at::Tensor& x, const at::Tensor& bias,
                      GeluForm form) {
  return at::gelu(x.to(at::kDouble) + bias.to(at::kDouble), NameOf(form));
}

at::Tensor ExactSlope(const at::Tensor& dy, const at::Tensor& x,
                      const at::Tensor& bias, GeluForm form) {
  return at::gelu_backward(dy.to(at::kDouble),
                           x.to(at::kDouble) + bias.to(at::kDouble),
                           NameOf(form));
}

void ExpectNear(const at::Tensor& actual, const at::Tensor& exact,
                const at::Tensor& allowed) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  if (actual.numel() == 0) return;
  const at::Tensor excess = (actual.to(at::kDouble) - exact).abs() - allowed;
  EXPECT_LE(excess.max().item<double>(), 0)
      << "difference " << (actual - exact).abs().max().item<double>();
}

TEST_P(BiasGeluTest, IsWithinItsBound) {
  const at::Tensor y = BiasGelu(x_, bias_, GetParam().form);
  const at::Tensor exact = ExactValue(x_, bias_, GetParam().form);
  const at::Tensor sum = (x_.to(at::kDouble) + bias_).abs();
  ExpectNear(y, exact, 4 * kUnit * at::max(exact.abs(), sum / 8));
}

TEST_P(BiasGeluTest, BackwardIsWithinItsBound) {
  const auto [dx, dbias] = BiasGeluBackward(dy_, x_, bias_, GetParam().form);
  const at::Tensor exact = ExactSlope(dy_, x_, bias_, GetParam().form);
  ExpectNear(dx, exact, 8 * kUnit * dy_.abs().to(at::kDouble));
  const int64_t columns = bias_.size(0);
  if (columns == 0) return;
  const at::Tensor rows = exact.reshape({-1, columns});
  // The error of a sum of n terms: half a unit for each of its levels and
  // terms.
  const auto terms = static_cast<double>(rows.size(0));
  ExpectNear(dbias, rows.sum(0),
             (8 + terms / 2) * kUnit *
                 dy_.abs().to(at::kDouble).reshape({-1, columns}).sum(0));
}

TEST_P(BiasGeluTest, Bf16IsTheRoundedResultOfFloats) {
  const at::Tensor x = x_.to(at::kBFloat16);
  const at::Tensor bias = bias_.to(at::kBFloat16);
  const at::Tensor dy = dy_.to(at::kBFloat16);
  const GeluForm form = GetParam().form;
  EXPECT_TRUE(at::equal(
      BiasGelu(x, bias, form),
      BiasGelu(x.to(at::kFloat), bias.to(at::kFloat), form).to(at::kBFloat16)));
  const auto [dx, dbias] = BiasGeluBackward(dy, x, bias, form);
  const auto [wide_dx, wide_dbias] = BiasGeluBackward(
      dy.to(at::kFloat), x.to(at::kFloat), bias.to(at::kFloat), form);
  EXPECT_TRUE(at::equal(dx, wide_dx.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(dbias, wide_dbias));
}

TEST_P(BiasGeluTest, ThreadsChangeNoBits) {
  const GeluForm form = GetParam().form;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor y = BiasGelu(x_, bias_, form);
  const auto [dx, dbias] = BiasGeluBackward(dy_, x_, bias_, form);
  at::set_num_threads(3);
  EXPECT_TRUE(at::equal(BiasGelu(x_, bias_, form), y));
  const auto [dx3, dbias3] = BiasGeluBackward(dy_, x_, bias_, form);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(dx3, dx));
  EXPECT_TRUE(at::equal(dbias3, dbias));
}

TEST_P(BiasGeluTest, AnyStrides) {
  const at::Tensor x = x_.repeat_interleave(2, -1).slice(-1, 0, {}, 2);
  const at::Tensor dy = dy_.repeat_interleave(2, -1).slice(-1, 0, {}, 2);
  const GeluForm form = GetParam().form;
  EXPECT_TRUE(at::equal(BiasGelu(x, bias_, form), BiasGelu(x_, bias_, form)));
  const auto strided = BiasGeluBackward(dy, x, bias_, form);
  const auto dense = BiasGeluBackward(dy_, x_, bias_, form);
  EXPECT_TRUE(at::equal(std::get<0>(strided), std::get<0>(dense)));
  EXPECT_TRUE(at::equal(std::get<1>(strided), std::get<1>(dense)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, BiasGeluTest,
                         testing::Values(Case{{0, 5}, GeluForm::kTanh},
                                         Case{{3, 0}, GeluForm::kTanh},
                                         Case{{1}, GeluForm::kTanh},
                                         Case{{1}, GeluForm::kNone},
                                         Case{{7, 13}, GeluForm::kTanh},
                                         Case{{7, 13}, GeluForm::kNone},
                                         Case{{3, 67, 512}, GeluForm::kTanh},
                                         Case{{3, 67, 512}, GeluForm::kNone},
                                         Case{{2, 20011}, GeluForm::kTanh}),
                         Name);

TEST(BiasGeluErrorsTest, WhatDoesNotFit) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_THROW(BiasGelu(x, at::randn({2}), GeluForm::kTanh), c10::Error);
  EXPECT_THROW(BiasGelu(x, at::randn({3}).to(at::kDouble), GeluForm::kTanh),
               c10::Error);
  EXPECT_THROW(BiasGelu(x.to(at::kDouble), at::randn({3}).to(at::kDouble),
                        GeluForm::kTanh),
               c10::Error);
  EXPECT_THROW(
      BiasGeluBackward(at::randn({3, 3}), x, at::randn({3}), GeluForm::kTanh),
      c10::Error);
}

TEST(BiasGeluErrorsTest, ANanStaysOne) {
  const at::Tensor x = at::full({1, 20}, NAN);
  for (GeluForm form : {GeluForm::kTanh, GeluForm::kNone}) {
    EXPECT_TRUE(BiasGelu(x, at::zeros({20}), form).isnan().all().item<bool>());
  }
}

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

// Ranks that share samples drop together what one drops: of neighbours
// (positions, heads), and of columns, wherever blocks of four begin.
class DropoutPartTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor x_ = at::randn({3, 13, 37}).to(GetParam());
  at::Tensor residual_ = at::randn({3, 13, 37}).to(GetParam());
  DropoutDraws draws_ = {kKey, kFirst, 0.3};

  at::Tensor Part(int64_t dim, int64_t first, int64_t count,
                  const SamplePart& part) {
    DropoutDraws draws = draws_;
    draws.part = part;
    return DropoutAdd(x_.narrow(dim, first, count),
                      residual_.narrow(dim, first, count), draws);
  }
};

TEST_P(DropoutPartTest, OfNeighboursIsThatPartOfTheWhole) {
  const at::Tensor whole = DropoutAdd(x_, residual_, draws_);
  for (const auto& [first, count] :
       {std::pair(0, 13), std::pair(0, 1), std::pair(1, 4), std::pair(5, 8),
        std::pair(12, 1), std::pair(7, 0)}) {
    EXPECT_TRUE(at::equal(Part(1, first, count, {first * 37}),
                          whole.narrow(1, first, count)))
        << first;
  }
}

TEST_P(DropoutPartTest, OfColumnsIsThatPartOfTheWhole) {
  const at::Tensor whole = DropoutAdd(x_, residual_, draws_);
  for (const auto& [first, count] :
       {std::pair(0, 37), std::pair(0, 1), std::pair(3, 6), std::pair(18, 19),
        std::pair(36, 1)}) {
    EXPECT_TRUE(at::equal(Part(2, first, count, {first, count, 37}),
                          whole.narrow(2, first, count)))
        << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DropoutPartTest,
                         testing::Values(at::kFloat, at::kBFloat16));

TEST(DropoutAddErrorsTest, WhatDoesNotFit) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_THROW(DropoutAdd(x, {}, {kKey, 0, 0.5, {0, 2, 4}}), c10::Error);
  EXPECT_THROW(DropoutAdd(x, {}, {kKey, 0, 0.5, {-1, 3, 0}}), c10::Error);
  EXPECT_THROW(DropoutAdd(x, at::randn({3}), {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x, x.to(at::kDouble), {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x.to(at::kDouble), {}, {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x[0][0], {}, {}), c10::Error);
  EXPECT_THROW(DropoutAdd(x, {}, {kKey, 0, 1.5}), c10::Error);
}

// LibTorch exports the functions of MKL that these are, though in no header.
TEST(RowMajorGemmTest, LibTorchHasItsFunctions) {
  EXPECT_TRUE(HasGemm(c10::kFloat));
  if (!__builtin_cpu_is("intel") || !ProcessorHas("avx512_bf16")) {
    GTEST_SKIP() << "bf16 is for Intel's processors with AVX512_BF16";
  }
  EXPECT_TRUE(HasGemm(c10::kBFloat16));
}

}  // namespace
}  // namespace tandem::elementwise_test
