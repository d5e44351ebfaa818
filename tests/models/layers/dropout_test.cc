#include "models/layers/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/testing/device_types.h"

namespace tandem::dropout_test {
namespace {

constexpr double kP = 0.3;
const Samples kSamples = {/*seed=*/7, /*step=*/3, /*first=*/16};

at::Tensor Drop(const at::Tensor& x, const Samples& samples,
                const std::string& name = "drop", double p = kP) {
  const SampleScope scope(samples);
  return SampleDropout(x, p, name);
}

TEST(SampleDropout, IsTheSameInAnyMicrobatchesAndInAnyOrder) {
  const at::Tensor x = at::randn({11, 3, 5});
  const at::Tensor whole = Drop(x, kSamples);
  const std::vector<std::vector<int64_t>> cuts = {{11}, {1, 10}, {4, 4, 3}};
  for (const auto& sizes : cuts) {
    std::vector<at::Tensor> parts(sizes.size());
    int64_t end = 11;
    for (size_t i = sizes.size(); i-- > 0;) {  // the last first
      end -= sizes[i];
      parts[i] = Drop(x.narrow(0, end, sizes[i]),
                      {kSamples.seed, kSamples.step, kSamples.first + end});
    }
    EXPECT_TRUE(at::cat(parts).equal(whole)) << sizes.size();
  }
}

TEST(SampleDropout, WhatElseWasDrawnDoesNotMatter) {
  const at::Tensor x = at::ones({2, 97});
  const at::Tensor first = Drop(x, kSamples);
  at::randn({5});
  Drop(x, kSamples, "other");
  EXPECT_TRUE(Drop(x, kSamples).equal(first));
}

TEST(SampleDropout, DiffersBySeedStepNameAndSample) {
  const at::Tensor x = at::ones({2, 97});
  const at::Tensor mask = Drop(x, kSamples);
  EXPECT_FALSE(mask[0].equal(mask[1]));
  EXPECT_FALSE(Drop(x, {8, 3, 16}).equal(mask));
  EXPECT_FALSE(Drop(x, {7, 4, 16}).equal(mask));
  EXPECT_FALSE(Drop(x, {7, 3, 18}).equal(mask));
  EXPECT_FALSE(Drop(x, kSamples, "drop2").equal(mask));
}

// Sample numbers beyond 32 bits are not folded onto smaller ones.
TEST(SampleDropout, TellsSamplesApartBeyond32Bits) {
  const at::Tensor x = at::ones({1, 97});
  EXPECT_FALSE(Drop(x, {7, 3, int64_t{1} << 32}).equal(Drop(x, {7, 3, 0})));
}

TEST(SampleDropout, DropsAShareOfPAndScalesTheRest) {
  const at::Tensor x = at::ones({100, 1001});
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = Drop(x, kSamples, "drop", p);
    const auto zeros = y.eq(0).sum().item<double>();
    const double n = static_cast<double>(y.numel());
    EXPECT_NEAR(zeros / n, p, 5 * std::sqrt(p * (1 - p) / n));
    EXPECT_NEAR(y.mean().item<double>(), 1, 0.05);
    EXPECT_TRUE(y.max().item<float>() == static_cast<float>(1 / (1 - p)));
    // No place is favoured: each column over 100 samples.
    EXPECT_LT(y.eq(0).sum(0).sub(100 * p).abs().max().item<double>(),
              6 * std::sqrt(100 * p * (1 - p)));
  }
}

TEST(SampleDropout, TakesTheEnds) {
  const at::Tensor x = at::randn({3, 7});
  EXPECT_TRUE(Drop(x, kSamples, "drop", 0).equal(x));
  EXPECT_TRUE(Drop(x, kSamples, "drop", 1).equal(at::zeros_like(x)));
  EXPECT_EQ(Drop(at::empty({0, 7}), kSamples).size(0), 0);
  EXPECT_THROW(Drop(at::ones({}), kSamples), c10::Error);
}

TEST(SampleDropout, TheGradientGoesThroughTheSameMask) {
  const at::Tensor x = at::randn({3, 7}).requires_grad_();
  Drop(x, kSamples).sum().backward();
  EXPECT_TRUE(x.grad().equal(Drop(at::ones({3, 7}), kSamples)));
}

TEST(SampleDropout, KeepsTheDtype) {
  const at::Tensor x = at::ones({3, 7}, at::kDouble);
  const at::Tensor y = Drop(x, kSamples);
  EXPECT_EQ(y.scalar_type(), at::kDouble);
  EXPECT_TRUE(y.eq(0).equal(Drop(at::ones({3, 7}), kSamples).eq(0)));
}

// Doubles, too, which have no kernel of their own.
TEST(SampleDropout, APartDropsWhatTheWholeDropsThere) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({3, 6, 5}).to(dtype);
    const at::Tensor whole = Drop(x, kSamples);
    const SampleScope scope(kSamples);
    EXPECT_TRUE(SampleDropout(x.narrow(1, 2, 3), kP, "drop", {2 * 5})
                    .equal(whole.narrow(1, 2, 3)));
    EXPECT_TRUE(SampleDropout(x.narrow(2, 1, 3), kP, "drop", {1, 3, 5})
                    .equal(whole.narrow(2, 1, 3)));
  }
}

class SampleDropoutOnDevices : public DeviceTypeTest {};

TEST_P(SampleDropoutOnDevices, HasTheCpusMask) {
  const at::Tensor x = at::randn({3, 7});
  const at::Tensor y = Drop(x.to(TestDevice()), kSamples);
  EXPECT_EQ(y.device().type(), TestDevice().type());
  EXPECT_TRUE(y.cpu().equal(Drop(x, kSamples)));
}

TANDEM_ON_DEVICE_TYPES(SampleDropoutOnDevices);

TEST(SampleDropout, OutsideOfAnyScopeIsLibTorchs) {
  const at::Tensor x = at::randn({3, 7});
  torch::manual_seed(5);
  const at::Tensor expected = at::dropout(x, kP, true);
  torch::manual_seed(5);
  EXPECT_TRUE(SampleDropout(x, kP, "drop").equal(expected));
}

TEST(DropoutLayer, IsOffInEvaluation) {
  const Layer layer = DropoutLayer("drop", kP).make(/*seed=*/0);
  const at::Tensor x = at::randn({3, 7});
  const SampleScope scope(kSamples);
  EXPECT_TRUE(layer.forward(x).equal(Drop(x, kSamples)));
  layer.module->eval();
  EXPECT_TRUE(layer.forward(x).equal(x));
  EXPECT_TRUE(layer.module->parameters().empty());
}

TEST(DropoutLayer, RefusesWhatIsNoProbability) {
  for (const double p : {-0.5, 1.5}) {
    EXPECT_THROW(DropoutLayer("drop", p).make(0), c10::ValueError) << p;
  }
}

}  // namespace
}  // namespace tandem::dropout_test
