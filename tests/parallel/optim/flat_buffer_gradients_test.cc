// Gradients of functions that write them to the flat buffer themselves, beside
// those of LibTorch's, which are copied.

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/model/weight_gradient_sink.h"
#include "models/functions/linear_function.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem::flat_buffer_gradients_test {
namespace {

// A square layer, and what its buffer has told.
struct Job {
  explicit Job(int64_t width = 7)
      : weight(at::randn({width, width}).requires_grad_()),
        bias(at::randn({width}).requires_grad_()),
        x(at::randn({5, width})) {}

  void Flatten() {
    buffers = MakeFlatBuffers({{"weight", weight}, {"bias", bias}});
    // Whatever lies there is to be written over.
    buffers[0]->grads().fill_(NAN);
    buffers[0]->set_on_gradient(
        [this](const FlatSlot& slot) { told.push_back(slot.name); });
  }

  at::Tensor weight, bias, x;
  FlatBuffers buffers;
  std::vector<std::string> told;
};

Job Copy(const Job& job) {
  Job copy;
  copy.weight = job.weight.detach().clone().requires_grad_();
  copy.bias = job.bias.detach().clone().requires_grad_();
  copy.x = job.x;
  return copy;
}

at::Tensor Ours(const Job& job, const at::Tensor& x) {
  return LinearFunction(x, job.weight, job.bias, WeightLayout::kOutIn);
}

at::Tensor Theirs(const Job& job, const at::Tensor& x) {
  return at::linear(x, job.weight, job.bias);
}

// The gradients of `actual`, which lie in its buffer, are those of `expected`.
void ExpectInPlace(const Job& actual, const Job& expected) {
  const std::vector<at::Tensor> parameters = {actual.weight, actual.bias};
  const std::vector<at::Tensor> others = {expected.weight, expected.bias};
  for (size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_TRUE(parameters[i].grad().defined());
    EXPECT_TRUE(parameters[i].grad().is_alias_of(actual.buffers[0]->grads()));
    EXPECT_TRUE(parameters[i].grad().allclose(others[i].grad(), 1e-5, 1e-5));
  }
  EXPECT_TRUE(actual.buffers[0]->CheckViews().ok());
}

TEST(FlatBufferGradientsTest, AreWrittenAndToldOnce) {
  Job actual;
  Job expected = Copy(actual);
  actual.Flatten();
  Ours(actual, actual.x).square().sum().backward();
  Theirs(expected, expected.x).square().sum().backward();
  ExpectInPlace(actual, expected);
  EXPECT_EQ(actual.told.size(), 2u);
}

TEST(FlatBufferGradientsTest, OfSeveralUsesAreTheirSum) {
  Job actual;
  Job expected = Copy(actual);
  actual.Flatten();
  Ours(actual, Ours(actual, actual.x)).square().sum().backward();
  Theirs(expected, Theirs(expected, expected.x)).square().sum().backward();
  ExpectInPlace(actual, expected);
  EXPECT_EQ(actual.told.size(), 2u);
}

TEST(FlatBufferGradientsTest, OfSeveralBackwardsAddUpUntilTheyAreZeroed) {
  Job actual;
  Job expected = Copy(actual);
  actual.Flatten();
  for (int step = 0; step < 2; ++step) {
    actual.buffers[0]->ZeroGrad();
    expected.weight.mutable_grad().reset();
    expected.bias.mutable_grad().reset();
    for (const double scale : {1.0, 0.5, 3.0}) {
      Ours(actual, actual.x * scale).square().sum().backward();
      Theirs(expected, expected.x * scale).square().sum().backward();
    }
    ExpectInPlace(actual, expected);
  }
}

TEST(FlatBufferGradientsTest, BesideAnotherFunctionsOfTheSameParameter) {
  Job actual;
  Job expected = Copy(actual);
  actual.Flatten();
  (Ours(actual, actual.x).square().sum() + actual.weight.square().sum())
      .backward();
  (Theirs(expected, expected.x).square().sum() + expected.weight.square().sum())
      .backward();
  ExpectInPlace(actual, expected);
  EXPECT_EQ(actual.told.size(), 2u);
}

TEST(FlatBufferGradientsTest, ThatWereLeftForLaterAreWrittenThen) {
  Job actual;
  Job expected = Copy(actual);
  actual.Flatten();
  const auto sink = std::make_shared<WeightGradientSink>();
  {
    const WeightGradientSink::Scope scope(sink);
    Ours(actual, actual.x).square().sum().backward();
  }
  EXPECT_TRUE(actual.told.empty());
  ASSERT_TRUE(sink->Flush().ok());
  Theirs(expected, expected.x).square().sum().backward();
  ExpectInPlace(actual, expected);
  EXPECT_EQ(actual.told.size(), 2u);
}

// Known of a product of few rows, whose factors are no larger than its bound
// allows; until something else is added.
TEST(FlatBufferGradientsTest, AreKnownToBeFiniteWhereFunctionsSaySo) {
  Job job(/*width=*/64);
  job.Flatten();
  const FlatBuffer& buffer = *job.buffers[0];
  const auto known = [&](const std::string& name) {
    for (size_t i = 0; i < buffer.slots().size(); ++i) {
      if (buffer.slots()[i].name == name) return buffer.is_known_finite(i);
    }
    return false;
  };
  const auto backward = [&](const at::Tensor& x, double scale = 1) {
    job.buffers[0]->ZeroGrad();
    (Ours(job, x) * scale).sum().backward();
  };
  backward(job.x);
  EXPECT_FALSE(known("weight")) << "nobody has asked";
  job.buffers[0]->AskWhetherFinite();
  backward(job.x);
  EXPECT_TRUE(known("weight"));
  EXPECT_FALSE(known("bias")) << "it has not been put";
  Ours(job, job.x).sum().backward();
  EXPECT_FALSE(known("weight")) << "more was added";
  backward(job.x);
  for (size_t i = 0; i < buffer.slots().size(); ++i) {
    job.buffers[0]->set_has_gradient(i, true);
  }
  EXPECT_TRUE(known("weight")) << "it was there";
  job.buffers[0]->ZeroGrad();
  EXPECT_FALSE(known("weight")) << "there is none";
  for (size_t i = 0; i < buffer.slots().size(); ++i) {
    job.buffers[0]->set_has_gradient(i, true);
  }
  EXPECT_FALSE(known("weight")) << "it is another's";
  // Factors are finite, and their product is not.
  backward(at::full({5, 64}, 1e25), 1e20);
  EXPECT_FALSE(known("weight"));
  EXPECT_FALSE(job.weight.grad().isfinite().all().item<bool>());
  backward(at::full({5, 64}, NAN));
  EXPECT_FALSE(known("weight"));
  backward(at::full({5, 64}, 1e25), 1e4);
  EXPECT_TRUE(known("weight"));
  backward(at::randn({40, 64}));
  EXPECT_FALSE(known("weight")) << "too many rows to pay";
}

TEST(FlatBufferGradientsTest, AfterTheBuffersDeathAreAutogradsOwn) {
  Job actual;
  Job expected = Copy(actual);
  actual.Flatten();
  actual.buffers.clear();
  Ours(actual, actual.x).square().sum().backward();
  Theirs(expected, expected.x).square().sum().backward();
  EXPECT_TRUE(
      actual.weight.grad().allclose(expected.weight.grad(), 1e-5, 1e-5));
}

}  // namespace
}  // namespace tandem::flat_buffer_gradients_test
