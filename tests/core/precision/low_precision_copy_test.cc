#include "core/precision/low_precision_copy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <thread>
#include <vector>

namespace tandem::low_precision_copy_test {
namespace {

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
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 7; ++i) {
    threads.emplace_back([i] {
      const at::NoGradGuard no_grad;
      for (int64_t k = 0; k < 50; ++k) {
        const at::Tensor parameter = Parameter({i + 1, 50});
        EXPECT_TRUE(LowPrecisionCopy(parameter, at::kBFloat16)
                        .equal(parameter.to(at::kBFloat16)));
      }
    });
  }
  for (std::thread& each : threads) each.join();
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
}  // namespace tandem::low_precision_copy_test
