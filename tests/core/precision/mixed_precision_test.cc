#include "core/precision/mixed_precision.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <thread>
#include <vector>

#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::mixed_precision_test {
namespace {

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

at::ScalarType DtypeOfProduct() {
  const at::Tensor x = at::ones({2, 2});
  return at::mm(x, x).scalar_type();
}

TEST(AutocastTest, ReachesLibTorchsOperatorsWhileItLives) {
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
  {
    const AutocastGuard guard(kCpu, at::kBFloat16);
    EXPECT_EQ(DtypeOfProduct(), at::kBFloat16);
    EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kBFloat16);
  }
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
  EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kFloat);
}

TEST(AutocastTest, ScopesNestAndPutBackWhatWas) {
  const AutocastGuard outer(kCpu, at::kBFloat16);
  {
    const AutocastGuard inner(kCpu, at::kHalf);
    EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kHalf);
  }
  EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kBFloat16);
}

TEST(AutocastTest, WithoutADtypeAllStaysAsItIs) {
  {
    const AutocastGuard none(kCpu, std::nullopt);
    EXPECT_FALSE(CurrentAutocast(kCpu).is_enabled);
  }
  const AutocastGuard outer(kCpu, at::kBFloat16);
  const AutocastGuard none(kCpu, std::nullopt);
  EXPECT_EQ(AutocastDtype(kCpu, at::kFloat), at::kBFloat16);
}

TEST(AutocastTest, LeavesDoublesAndIntegersAlone) {
  const AutocastGuard guard(kCpu, at::kBFloat16);
  EXPECT_EQ(AutocastDtype(kCpu, at::kDouble), at::kDouble);
  EXPECT_EQ(AutocastDtype(kCpu, at::kLong), at::kLong);
  EXPECT_EQ(AutocastDtype(kCpu, at::kHalf), at::kBFloat16);
}

TEST(AutocastTest, IsTheCallingThreadsOwn) {
  const AutocastGuard guard(kCpu, at::kBFloat16);
  at::ScalarType elsewhere = at::kBFloat16;
  std::thread([&] { elsewhere = AutocastDtype(kCpu, at::kFloat); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

TEST(MixedPrecisionTest, TakesLowPrecisionsAlone) {
  MixedPrecision precision;
  EXPECT_TRUE(CheckMixedPrecision(precision).ok());
  precision.param_dtype = at::kBFloat16;
  precision.reduce_dtype = at::kHalf;
  EXPECT_TRUE(CheckMixedPrecision(precision).ok());
  precision.buffer_dtype = at::kDouble;
  const absl::Status status = CheckMixedPrecision(precision);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "mixed_precision.buffer_dtype is Double: expected BFloat16 or "
            "Half, or none for fp32");
}

TEST(MixedPrecisionTest, HasNames) {
  for (const char* name : {"fp32", "bf16", "fp16"}) {
    const auto dtype = PrecisionOfName(name);
    ASSERT_TRUE(dtype.ok()) << dtype.status();
    EXPECT_EQ(PrecisionName(*dtype), name);
  }
  EXPECT_EQ(PrecisionOfName("tf32").status().message(),
            "precision 'tf32': expected fp32, bf16 or fp16");
}

TEST(MixedPrecisionTest, DescribesItself) {
  MixedPrecision precision;
  precision.param_dtype = at::kBFloat16;
  EXPECT_EQ(Describe(precision),
            "params bf16, gradients fp32 between replicas, buffers fp32");
}

TEST(CastBuffersTest, LeavesBatchNormsStatisticsAndIntegers) {
  const NamedTensors buffers = {
      {"table", at::ones({2})},
      {"bn.running_mean", at::ones({2})},
      {"bn.running_var", at::ones({2})},
      {"bn.num_batches_tracked", at::ones({}, at::kLong)}};
  CastBuffers(buffers, at::kBFloat16);
  EXPECT_EQ(buffers[0].second.scalar_type(), at::kBFloat16);
  EXPECT_EQ(buffers[1].second.scalar_type(), at::kFloat);
  EXPECT_EQ(buffers[2].second.scalar_type(), at::kFloat);
  EXPECT_EQ(buffers[3].second.scalar_type(), at::kLong);
}

at::Tensor Parameter(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}

TEST(LowPrecisionCopyTest, HasTheParametersValuesRounded) {
  const at::NoGradGuard no_grad;
  const at::Tensor parameter = Parameter({3, 5});
  const at::Tensor copy = LowPrecisionCopy(parameter, at::kBFloat16);
  EXPECT_TRUE(copy.equal(parameter.to(at::kBFloat16)));
  EXPECT_FALSE(copy.requires_grad());
}

TEST(LowPrecisionCopyTest, IsMadeOnceUntilTheParameterIsWritten) {
  const at::NoGradGuard no_grad;
  const at::Tensor parameter = Parameter({4});
  const at::Tensor first = LowPrecisionCopy(parameter, at::kBFloat16);
  const uint32_t version = first._version();
  EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16).is_same(first));
  EXPECT_EQ(first._version(), version) << "written again";
  parameter.add_(1);
  const at::Tensor second = LowPrecisionCopy(parameter, at::kBFloat16);
  EXPECT_TRUE(second.is_same(first)) << "in its place";
  EXPECT_TRUE(second.equal(parameter.to(at::kBFloat16)));
}

TEST(LowPrecisionCopyTest, IsKeptUntilItIsDropped) {
  const at::NoGradGuard no_grad;
  const at::Tensor parameter = Parameter({4});
  EXPECT_FALSE(KeptLowPrecisionCopy(parameter).defined());
  const at::Tensor copy = LowPrecisionCopy(parameter, at::kBFloat16);
  EXPECT_TRUE(KeptLowPrecisionCopy(parameter).is_same(copy));
  DropLowPrecisionCopy(parameter);
  EXPECT_FALSE(KeptLowPrecisionCopy(parameter).defined());
}

// The parameter has its values elsewhere.
TEST(LowPrecisionCopyTest, IsTheOneThatIsGivenUntilItIsDropped) {
  const at::NoGradGuard no_grad;
  const at::Tensor parameter = Parameter({4});
  LowPrecisionCopy(parameter, at::kBFloat16);
  const at::Tensor given = at::randn({4}).to(at::kBFloat16);
  GiveLowPrecisionCopy(parameter, given);
  for (int i = 0; i < 2; ++i) {
    const at::Tensor copy = LowPrecisionCopy(parameter, at::kBFloat16);
    EXPECT_EQ(copy.data_ptr(), given.data_ptr());
    EXPECT_TRUE(copy.equal(given));
    parameter.add_(1);  // nobody reads it
  }
  DropLowPrecisionCopy(parameter);
  EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16)
                  .equal(parameter.to(at::kBFloat16)));
}

TEST(LowPrecisionCopyTest, FollowsAParameterToOtherMemory) {
  const at::NoGradGuard no_grad;
  const at::Tensor parameter = Parameter({4});
  LowPrecisionCopy(parameter, at::kBFloat16);
  parameter.set_data(at::randn({4}));
  EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16)
                  .equal(parameter.to(at::kBFloat16)));
  parameter.set_data(at::randn({2, 3}));
  EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16)
                  .equal(parameter.to(at::kBFloat16)));
}

// A tensor as hooks on saved tensors give it back: activation checkpointing's.
TEST(LowPrecisionCopyTest, IsOneForAllTensorsOfAnAccumulator) {
  const at::Tensor parameter = Parameter({4});
  const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  at::Tensor unpacked = parameter.detach().requires_grad_();
  torch::autograd::impl::set_grad_accumulator(
      unpacked, c10::weak_intrusive_ptr<torch::autograd::Node>(accumulator));
  const at::NoGradGuard no_grad;
  const at::Tensor first = LowPrecisionCopy(parameter, at::kBFloat16);
  EXPECT_TRUE(LowPrecisionCopy(unpacked, at::kBFloat16).is_same(first));
  parameter.add_(1);
  EXPECT_TRUE(LowPrecisionCopy(unpacked, at::kBFloat16)
                  .equal(parameter.to(at::kBFloat16)));
}

// A head hands its weight on to the loss like this.
TEST(LowPrecisionCopyTest, IsOneForAViewOfAllOfTheParameter) {
  const at::Tensor parameter = Parameter({4, 3});
  const at::Tensor view = parameter.view_as(parameter);
  const at::NoGradGuard no_grad;
  const at::Tensor copy = LowPrecisionCopy(parameter, at::kBFloat16);
  EXPECT_TRUE(LowPrecisionCopy(view, at::kBFloat16).is_same(copy));
  EXPECT_TRUE(LowPrecisionCopy(parameter.view_as(parameter), at::kBFloat16)
                  .is_same(copy));
  const at::Tensor part = parameter.narrow(0, 1, 2);
  EXPECT_TRUE(
      LowPrecisionCopy(part, at::kBFloat16).equal(part.to(at::kBFloat16)));
}

TEST(LowPrecisionCopyTest, TakesAnotherDtypeNextTime) {
  const at::NoGradGuard no_grad;
  const at::Tensor parameter = Parameter({4});
  LowPrecisionCopy(parameter, at::kBFloat16);
  EXPECT_TRUE(
      LowPrecisionCopy(parameter, at::kHalf).equal(parameter.to(at::kHalf)));
  EXPECT_TRUE(LowPrecisionCopy(parameter, at::kFloat).is_same(parameter));
}

TEST(LowPrecisionCopyTest, IsAPartOfTheGraphWhereGradientsAreRecorded) {
  const at::Tensor parameter = Parameter({4});
  LowPrecisionCopy(parameter, at::kBFloat16).sum().backward();
  ASSERT_TRUE(parameter.grad().defined());
  EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(parameter.grad().eq(1).all().item<bool>());
}

TEST(LowPrecisionCopyTest, GoesWithTheParameter) {
  const at::NoGradGuard no_grad;
  using Weak =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  Weak first(at::randn({1}).getIntrusivePtr());
  {
    const at::Tensor parameter = Parameter({8});
    first = Weak(LowPrecisionCopy(parameter, at::kBFloat16).getIntrusivePtr());
    EXPECT_FALSE(first.expired());
  }
  // Others come: those of the gone are looked for now and then.
  for (int i = 0; i < 100; ++i) {
    LowPrecisionCopy(Parameter({1}), at::kBFloat16);
  }
  EXPECT_TRUE(first.expired());
}

TEST(LowPrecisionCopyTest, GoesWhenItIsDropped) {
  const at::NoGradGuard no_grad;
  using Weak =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  const at::Tensor parameter = Parameter({8});
  const Weak copy(LowPrecisionCopy(parameter, at::kBFloat16).getIntrusivePtr());
  EXPECT_FALSE(copy.expired());
  DropLowPrecisionCopy(parameter);
  EXPECT_TRUE(copy.expired());
  EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16)
                  .equal(parameter.to(at::kBFloat16)));
  DropLowPrecisionCopy(Parameter({1}));  // of which there is none
}

TEST(LowPrecisionCopyTest, ManyThreadsMayAskForDifferentOnes) {
  OnThreads(7, [](int64_t i) {
    const at::NoGradGuard no_grad;
    for (int64_t k = 0; k < 50; ++k) {
      const at::Tensor parameter = Parameter({i + 1, 50});
      EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16)
                      .equal(parameter.to(at::kBFloat16)));
    }
  });
}

TEST(LowPrecisionCopyTest, ManyThreadsMayAsk) {
  const at::Tensor parameter = Parameter({1000});
  std::vector<std::thread> threads;
  std::vector<at::Tensor> copies(7);
  for (at::Tensor& copy : copies) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      copy = LowPrecisionCopy(parameter, at::kBFloat16);
    });
  }
  for (std::thread& each : threads) each.join();
  for (const at::Tensor& copy : copies) {
    EXPECT_TRUE(copy.is_same(copies[0]));
    EXPECT_TRUE(copy.equal(parameter.detach().to(at::kBFloat16)));
  }
}

}  // namespace
}  // namespace tandem::mixed_precision_test
