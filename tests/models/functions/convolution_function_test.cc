#include "models/functions/convolution_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "models/functions/image_patches.h"
#include "models/functions/matrix_product.h"

namespace tandem::convolution_function_test {
namespace {

using torch::autograd::grad;

const std::vector<PatchShape> kShapes = {{3, 1, 1}, {3, 2, 1}, {2, 1, 0},
                                         {1, 1, 0}, {5, 3, 2}, {3, 1, 0}};

TEST(Patches, AreThoseOfIm2col) {
  const at::Tensor images = at::randn({2, 3, 5, 4});
  for (const PatchShape& shape : kShapes) {
    const at::Tensor expected =
        at::im2col(images, {shape.kernel, shape.kernel}, {1, 1},
                   {shape.padding, shape.padding}, {shape.stride, shape.stride})
            .transpose(1, 2)
            .flatten(0, 1);
    EXPECT_TRUE(PatchRows(images, shape).equal(expected));
    const at::Tensor channels_last =
        images.contiguous(at::MemoryFormat::ChannelsLast);
    EXPECT_TRUE(PatchRows(channels_last, shape).equal(expected));
  }
}

// <PatchRows(x), r> = <x, SumPatchRows(r)> for every x and r.
TEST(Patches, SummingThemIsTheTranspose) {
  const at::Tensor images = at::randn({2, 3, 5, 4});
  for (const PatchShape& shape : kShapes) {
    const at::Tensor rows = PatchRows(images, shape);
    const at::Tensor other = at::randn(rows.sizes());
    const at::Tensor summed = SumPatchRows(other, images.sizes(), shape);
    EXPECT_EQ(summed.sizes(), images.sizes());
    EXPECT_NEAR((rows.to(at::kDouble) * other).sum().item<double>(),
                (images.to(at::kDouble) * summed).sum().item<double>(), 1e-4);
  }
}

struct Problem {
  at::Tensor x, weight;
  int64_t stride;

  at::Tensor Expected() const {
    return at::conv2d(x, weight, {}, stride, weight.size(2) / 2);
  }
  at::Tensor Actual() const {
    return ConvolutionFunction(x, weight, stride, weight.size(2) / 2);
  }
};

Problem MakeProblem(int64_t size, int64_t stride, int64_t kernel = 3) {
  return {at::randn({32, 48, size, size}).requires_grad_(),
          at::randn({64, 48, kernel, kernel}).requires_grad_(), stride};
}

// By products: a node of its own. Else LibTorch's.
bool IsByProducts(const at::Tensor& y) {
  return y.grad_fn()->name() == "ConvolutionByProductBackward";
}

void ExpectSameAsConv2d(const Problem& problem) {
  const at::Tensor expected = problem.Expected();
  const at::Tensor actual = problem.Actual();
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(actual, expected, 1e-4, 1e-4));
  const at::Tensor dy = at::randn(expected.sizes());
  const auto inputs = {problem.x, problem.weight};
  const auto wanted = grad({expected}, inputs, {dy});
  const auto given = grad({actual}, inputs, {dy});
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::allclose(given[i], wanted[i], 1e-4, 1e-3)) << i;
  }
}

TEST(ConvolutionFunction, SmallOutputsAreComputedByProducts) {
  for (const Problem& problem :
       {MakeProblem(2, 1), MakeProblem(4, 2), MakeProblem(3, 2)}) {
    EXPECT_TRUE(IsByProducts(problem.Actual()));
    ExpectSameAsConv2d(problem);
  }
}

TEST(ConvolutionFunction, AllElseIsLeftToConv2d) {
  for (const Problem& problem :
       {MakeProblem(3, 1), MakeProblem(8, 2), MakeProblem(2, 1, 1)}) {
    EXPECT_FALSE(IsByProducts(problem.Actual()));
    ExpectSameAsConv2d(problem);
  }
  Problem doubles = MakeProblem(2, 1);
  doubles.x = doubles.x.detach().to(at::kDouble);
  doubles.weight = doubles.weight.detach().to(at::kDouble).requires_grad_();
  EXPECT_FALSE(IsByProducts(doubles.Actual()));
}

TEST(ConvolutionFunction, TakesChannelsLast) {
  Problem problem = MakeProblem(2, 1);
  problem.x = problem.x.detach()
                  .contiguous(at::MemoryFormat::ChannelsLast)
                  .requires_grad_();
  EXPECT_TRUE(IsByProducts(problem.Actual()));
  ExpectSameAsConv2d(problem);
}

TEST(ConvolutionFunction, WithoutGradientsItKeepsNothing) {
  const Problem problem = MakeProblem(2, 1);
  at::NoGradGuard no_grad;
  EXPECT_FALSE(problem.Actual().requires_grad());
}

TEST(ConvolutionFunction, ASecondBackwardWithoutItsGraphIsAnError) {
  const at::Tensor loss = MakeProblem(2, 1).Actual().sum();
  loss.backward();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(ConvolutionFunction, RefusesToBeDifferentiatedTwice) {
  const Problem problem = MakeProblem(2, 1);
  EXPECT_THROW(grad({problem.Actual().sum()}, {problem.x}, {},
                    /*retain_graph=*/true, /*create_graph=*/true),
               c10::Error);
}

TEST(ConvolutionFunction, ShapesThatDoNotFitAreConv2dsErrors) {
  EXPECT_THROW(ConvolutionFunction(at::randn({8, 47, 2, 2}),
                                   at::randn({64, 48, 3, 3}), 1, 1),
               c10::Error);
}

}  // namespace
}  // namespace tandem::convolution_function_test
