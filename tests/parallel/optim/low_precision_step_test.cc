// Optimizer steps that write parameters' low-precision copies as they go.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/precision/low_precision_copy.h"
#include "gtest/gtest.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem::low_precision_step_test {
namespace {

// Several blocks of a step, and less than one; none ends where one does.
const std::vector<std::vector<int64_t>> kShapes = {
    {3}, {701, 1009}, {7, 11}, {0}, {263, 1021}};

struct Model {
  Model() {
    at::manual_seed(1);
    NamedTensors named;
    for (const auto& shape : kShapes) {
      parameters.push_back(at::randn(shape).requires_grad_());
      named.emplace_back(absl::StrCat("p", named.size()), parameters.back());
    }
    buffers = MakeFlatBuffers(named);
  }

  void Backward(int step) {
    at::manual_seed(100 + step);
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    at::Tensor loss;
    for (const at::Tensor& each : parameters) {
      const at::Tensor term = each.mul(at::randn_like(each)).sum();
      loss = loss.defined() ? loss.add(term) : term;
    }
    loss.backward();
  }

  std::vector<at::Tensor> parameters;
  FlatBuffers buffers;
};

at::Tensor CopyNow(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  return LowPrecisionCopy(parameter, at::kBFloat16);
}

class LowPrecisionStepTest : public testing::TestWithParam<int> {
 protected:
  static OptimizerOptions Options() {
    switch (GetParam()) {
      case 0:
        return SgdOptions{/*momentum=*/0.9};
      case 1:
        return AdamOptions();
      default:
        return AdamWOptions();
    }
  }
};

// Bit for bit what a model without copies comes to, and the copies with it.
TEST_P(LowPrecisionStepTest, WritesCopiesAndTheSameValues) {
  Model plain;
  Model copied;
  const auto one = MakeOptimizer(Options(), plain.buffers);
  const auto other = MakeOptimizer(Options(), copied.buffers);
  ASSERT_TRUE(one.ok() && other.ok());
  for (int step = 0; step < 4; ++step) {
    for (const at::Tensor& each : copied.parameters) CopyNow(each);
    plain.Backward(step);
    copied.Backward(step);
    (*one)->Step(0.1);
    (*other)->Step(0.1);
    for (size_t i = 0; i < kShapes.size(); ++i) {
      const at::Tensor& parameter = copied.parameters[i];
      EXPECT_TRUE(parameter.equal(plain.parameters[i])) << i;
      EXPECT_TRUE(KeptLowPrecisionCopy(parameter).equal(
          parameter.detach().to(at::kBFloat16)))
          << i;
    }
  }
}

// What the step has written nobody writes again, until the values change.
TEST_P(LowPrecisionStepTest, CopiesAreCurrentAfterIt) {
  Model model;
  const auto optimizer = MakeOptimizer(Options(), model.buffers);
  ASSERT_TRUE(optimizer.ok());
  const at::Tensor& parameter = model.parameters[1];
  CopyNow(parameter);
  model.Backward(0);
  (*optimizer)->Step(0.1);
  KeptLowPrecisionCopy(parameter).fill_(5);
  EXPECT_EQ(CopyNow(parameter)[0][0].item<float>(), 5);
  model.buffers[0]->CountWrite();
  EXPECT_TRUE(CopyNow(parameter).equal(parameter.detach().to(at::kBFloat16)));
}

// A copy in another order than its parameter's is written when it is asked for.
TEST_P(LowPrecisionStepTest, CopiesInAnotherFormatAreWrittenLater) {
  const at::Tensor weight = at::randn({4, 3, 2, 2}).requires_grad_();
  const FlatBuffers buffers = MakeFlatBuffers({{"weight", weight}});
  const auto optimizer = MakeOptimizer(Options(), buffers);
  ASSERT_TRUE(optimizer.ok());
  const auto copy = [&] {
    const at::NoGradGuard no_grad;
    return LowPrecisionCopy(weight, at::kBFloat16,
                            at::MemoryFormat::ChannelsLast);
  };
  EXPECT_TRUE(copy().is_contiguous(at::MemoryFormat::ChannelsLast));
  weight.mul(2).sum().backward();
  (*optimizer)->Step(0.1);
  EXPECT_TRUE(copy().equal(weight.detach().to(at::kBFloat16)));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, LowPrecisionStepTest,
                         testing::Range(0, 3));

}  // namespace
}  // namespace tandem::low_precision_step_test
