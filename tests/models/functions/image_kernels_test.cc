// Convolutions, pools and normalisations of images while kernels are measured.

#include "models/functions/image_kernels.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autotune/choice_file.h"
#include "core/precision/autocast.h"
#include "models/functions/conv2d_function.h"
#include "models/functions/convolution_function.h"
#include "models/functions/max_pool_function.h"
#include "models/functions/norm_function.h"
#include "tests/models/functions/measured_kernels.h"

namespace tandem::image_kernels_test {
namespace {

using testing::HasSubstr;

constexpr at::MemoryFormat kContiguous = at::MemoryFormat::Contiguous;
constexpr at::MemoryFormat kChannelsLast = at::MemoryFormat::ChannelsLast;

class ImageKernelsTest : public MeasuredKernelsTest {
 protected:
  std::vector<std::string> Questions() {
    std::vector<std::string> questions;
    const Choices written = Written();
    for (const auto& [key, choice] : written) questions.push_back(key);
    return questions;
  }
};

at::Tensor Images(at::MemoryFormat format = kContiguous) {
  return at::randn({4, 6, 9, 7}).contiguous(format).requires_grad_();
}

using Operator = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Case {
  std::string name;
  std::vector<at::Tensor> weights;
  Operator ours, pytorchs;
};

std::vector<Case> Cases() {
  const auto parameter = [](at::IntArrayRef sizes) {
    return at::randn(sizes).requires_grad_();
  };
  return {
      {"convolution",
       {parameter({5, 6, 3, 3}), parameter({5})},
       [](const auto& in) { return Conv2dFunction(in[0], in[1], in[2], 2, 1); },
       [](const auto& in) { return at::conv2d(in[0], in[1], in[2], 2, 1); }},
      {"max pool",
       {},
       [](const auto& in) { return MaxPool2dFunction(in[0], 3, 2, 1); },
       [](const auto& in) { return at::max_pool2d(in[0], 3, 2, 1); }},
      {"batch norm",
       {parameter({6}), parameter({6})},
       [](const auto& in) {
         BatchNormArguments arguments;
         arguments.weight = in[1];
         arguments.bias = in[2];
         return BatchNormFunction(in[0], arguments);
       },
       [](const auto& in) {
         return at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5,
                               false);
       }}};
}

struct Results {
  at::Tensor y;
  std::vector<at::Tensor> gradients;
};

Results Computed(const Operator& function, const at::Tensor& x,
                 const std::vector<at::Tensor>& weights) {
  std::vector<at::Tensor> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  Results results;
  results.y = function(inputs);
  results.gradients = torch::autograd::grad({results.y.square().sum()}, inputs);
  return results;
}

void ExpectSameValues(const Results& results, const Results& expected) {
  ASSERT_EQ(results.y.sizes(), expected.y.sizes());
  EXPECT_TRUE(results.y.allclose(expected.y, 1e-4, 1e-4));
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(
        results.gradients[i].allclose(expected.gradients[i], 1e-4, 1e-3))
        << "gradient " << i;
  }
}

TEST_F(ImageKernelsTest, OperatorsAreComputedInTheFasterFormat) {
  for (const Case& each : Cases()) {
    for (const at::MemoryFormat given : {kContiguous, kChannelsLast}) {
      const at::Tensor x = Images(given);
      const Results expected = Computed(each.pytorchs, x, each.weights);
      for (const at::MemoryFormat faster : {kContiguous, kChannelsLast}) {
        SCOPED_TRACE(each.name);
        Measure(faster == kContiguous ? "contiguous" : "channels_last");
        const Results results = Computed(each.ours, x, each.weights);
        EXPECT_EQ(results.y.suggest_memory_format(), faster);
        EXPECT_EQ(results.gradients[0].suggest_memory_format(), given);
        ExpectSameValues(results, expected);
      }
    }
  }
}

TEST_F(ImageKernelsTest, ByTheFixedRuleFormatsStayAsTheyAre) {
  for (const Case& each : Cases()) {
    for (const at::MemoryFormat given : {kContiguous, kChannelsLast}) {
      SCOPED_TRACE(each.name);
      const at::Tensor x = Images(given);
      const Results results = Computed(each.ours, x, each.weights);
      const Results expected = Computed(each.pytorchs, x, each.weights);
      EXPECT_TRUE(results.y.equal(expected.y));
      EXPECT_EQ(results.y.strides(), expected.y.strides());
    }
  }
}

// A single channel's strides are those of both formats.
TEST_F(ImageKernelsTest, ImagesOfOneChannelHaveAFormat) {
  const at::Tensor x = at::randn({4, 1, 9, 7});
  const at::Tensor weight = at::randn({5, 1, 3, 3}).requires_grad_();
  Measure("channels_last");
  const at::Tensor y = Conv2dFunction(x, weight, /*bias=*/{}, 1, 1);
  EXPECT_EQ(y.suggest_memory_format(), kChannelsLast);
  EXPECT_TRUE(y.allclose(at::conv2d(x, weight, {}, 1, 1), 1e-4, 1e-4));
}

TEST_F(ImageKernelsTest, WeightsInChannelsLastHaveDecided) {
  const at::Tensor weight = at::randn({5, 6, 3, 3}).contiguous(kChannelsLast);
  Measure("contiguous");
  const at::Tensor x = Images(kChannelsLast);
  EXPECT_EQ(
      Conv2dFunction(x, weight, /*bias=*/{}, 1, 1).suggest_memory_format(),
      kChannelsLast);
  EXPECT_TRUE(Questions().empty());
}

TEST_F(ImageKernelsTest, QuestionsAreToldApart) {
  const at::Tensor weight = at::randn({5, 6, 3, 3}).requires_grad_();
  Measure("channels_last");
  const auto ask = [&](const at::Tensor& x, int64_t stride) {
    Conv2dFunction(x, weight, /*bias=*/{}, stride, 1);
  };
  ask(Images(), 1);
  ask(Images(), 1);  // again
  ask(Images(), 2);
  ask(Images(kChannelsLast), 1);
  ask(Images().detach(), 1);  // no gradient of the images
  ask(at::randn({3, 6, 9, 7}), 1);
  MaxPool2dFunction(Images(), 2, 2, 0);
  const std::vector<std::string> questions = Questions();
  EXPECT_EQ(questions.size(), 6);
  for (const std::string part :
       {"convolution 5 6 3 3 1 1 0 1 1 0 of 4 x 6 x 9 x 7 Float contiguous on",
        "4 x 6 x 9 x 7 Float channels_last on", "max pool 2 2 0 1 of"}) {
    EXPECT_THAT(questions, testing::Contains(HasSubstr(part)));
  }
}

// The last layers of a ResNet, in both dtypes.
TEST_F(ImageKernelsTest, SmallConvolutionsAreProductsWhereTheseAreFaster) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::string faster : {"onednn", "products"}) {
      SCOPED_TRACE(faster);
      Measure(faster);
      const at::Tensor x = at::randn({3, 6, 4, 4}).to(dtype).requires_grad_();
      const at::Tensor weight = at::randn({8, 6, 3, 3}).requires_grad_();
      const at::Tensor y = [&] {
        const AutocastGuard autocast(at::kCPU, dtype == at::kFloat
                                                   ? std::nullopt
                                                   : std::optional(dtype));
        return ConvolutionFunction(x, weight, 1, 1);
      }();
      EXPECT_EQ(y.grad_fn()->name() == "ConvolutionByProductBackward",
                faster == "products");
      EXPECT_EQ(y.scalar_type(), dtype);
      const at::Tensor plain = at::conv2d(
          x.to(at::kFloat), weight.to(dtype).to(at::kFloat), {}, 1, 1);
      const double tolerance = dtype == at::kFloat ? 1e-4 : 2e-2;
      EXPECT_TRUE(y.to(at::kFloat).allclose(plain, tolerance, tolerance * 4));
      const at::Tensor dy = at::randn(y.sizes()).to(dtype);
      const auto given = torch::autograd::grad({y}, {x, weight}, {dy});
      const auto wanted =
          torch::autograd::grad({plain}, {x, weight}, {dy.to(at::kFloat)});
      EXPECT_EQ(given[0].scalar_type(), dtype);
      EXPECT_EQ(given[1].scalar_type(), at::kFloat);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(
            given[i]
                .to(at::kFloat)
                .allclose(wanted[i].to(at::kFloat), tolerance, tolerance * 8))
            << i;
      }
    }
  }
}

TEST_F(ImageKernelsTest, LargerConvolutionsAreNot) {
  Measure("products");
  const at::Tensor weight = at::randn({8, 6, 3, 3}).requires_grad_();
  const at::Tensor y =
      ConvolutionFunction(at::randn({3, 6, 5, 5}), weight, 1, 1);
  EXPECT_NE(y.grad_fn()->name(), "ConvolutionByProductBackward");
}

}  // namespace
}  // namespace tandem::image_kernels_test
