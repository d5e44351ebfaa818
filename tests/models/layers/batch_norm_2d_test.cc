#include "models/layers/batch_norm_2d.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/weight_gradient_sink.h"
#include "core/testing/device_types.h"
#include "tests/models/rounding.h"

namespace tandem::batch_norm_2d_test {
namespace {

constexpr int64_t kChannels = 3;
// Tolerance of a mean of 70 values, relative to it.
double MeanTolerance() { return RoundingTolerance(at::kFloat, 70, 1); }
const std::vector<int64_t> kUneven = {4, 1, 2};  // samples of each microbatch

at::Tensor Images() {
  return at::randn({7, kChannels, 5, 2}) * 3 + 100;  // far from 0
}

// All microbatches forward, then, the last first, backward.
void RunStep(BatchNorm2d& norm, const at::Tensor& images, bool defers,
             bool recomputes = false) {
  std::vector<at::Tensor> losses;
  int64_t first = 0;
  const int count = static_cast<int>(kUneven.size());
  for (int i = 0; i < count; ++i) {
    const at::Tensor x = images.narrow(0, first, kUneven[i]);
    first += kUneven[i];
    const MicrobatchScope scope({i, count, /*is_recomputed=*/false, defers});
    const at::Tensor y = norm.forward(x);
    losses.push_back(y.square().sum());
    if (!recomputes) continue;
    const MicrobatchScope again({i, count, /*is_recomputed=*/true, defers});
    const at::Tensor y_again = norm.forward(x);
    EXPECT_TRUE(y_again.equal(y));
    losses.back() = y_again.square().sum();
  }
  for (size_t i = losses.size(); i-- > 0;) losses[i].backward();
}

TEST(BatchNorm2d, WithoutAScopeIsPyTorchs) {
  BatchNorm2d norm(kChannels);
  torch::nn::BatchNorm2dImpl expected(kChannels);
  const at::Tensor images = Images();
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(norm.forward(images).equal(expected.forward(images)));
  }
  EXPECT_TRUE(norm.running_mean.equal(expected.running_mean));
  EXPECT_TRUE(norm.running_var.equal(expected.running_var));
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 2);
  norm.eval();
  expected.eval();
  EXPECT_TRUE(norm.forward(images).equal(expected.forward(images)));
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 2);
}

TEST(BatchNorm2d, EachMicrobatchIsNormalisedByItself) {
  const at::Tensor images = Images();
  for (const bool defers : {false, true}) {
    BatchNorm2d norm(kChannels);
    const at::Tensor x = images.narrow(0, 0, 4);
    const MicrobatchScope scope({0, 2, false, defers});
    const at::Tensor y = norm.forward(x);
    EXPECT_TRUE(y.equal(at::batch_norm(x, norm.weight, norm.bias, {}, {}, true,
                                       0.1, 1e-5, false)));
  }
}

TEST(BatchNorm2d, DeferredItTakesInTheWholeMiniBatchOnce) {
  const at::Tensor images = Images();
  BatchNorm2d norm(kChannels);
  torch::nn::BatchNorm2dImpl expected(kChannels);
  for (int step = 1; step <= 3; ++step) {
    RunStep(norm, images * step, /*defers=*/true);
    expected.forward(images * step);
    EXPECT_TRUE(at::allclose(norm.running_mean, expected.running_mean,
                             MeanTolerance(), 0));
    EXPECT_TRUE(at::allclose(norm.running_var, expected.running_var, 1e-5, 0));
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), step);
  }
}

// torchgpipe's test_deferred_batch_norm: with momentum None running statistics
// are means over all batches, deferred or not.
TEST(BatchNorm2d, WithoutAMomentumItAverages) {
  const at::Tensor images = Images();
  const auto options =
      torch::nn::BatchNorm2dOptions(kChannels).momentum(c10::nullopt);
  for (const bool defers : {false, true}) {
    BatchNorm2d norm(options);
    torch::nn::BatchNorm2dImpl expected(options);
    for (int step = 1; step <= 3; ++step) {
      if (defers) {
        RunStep(norm, images * step, defers);
      } else {
        norm.forward(images * step);
      }
      expected.forward(images * step);
      EXPECT_TRUE(
          at::allclose(norm.running_mean, expected.running_mean, 1e-5, 1e-4));
      EXPECT_TRUE(
          at::allclose(norm.running_var, expected.running_var, 1e-5, 1e-4));
    }
  }
}

// What has come before is taken in by index.
TEST(BatchNorm2d, DeferredItTakesMicrobatchesInAnyOrder) {
  const at::Tensor images = Images();
  BatchNorm2d expected(kChannels);
  RunStep(expected, images, /*defers=*/true);
  const std::vector<int64_t> firsts = {0, 4, 5};
  for (const std::vector<int>& order : std::vector<std::vector<int>>{
           {2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}}) {
    BatchNorm2d norm(kChannels);
    {  // of a step that ended half-way
      const MicrobatchScope scope({order[0], 3, false, true});
      norm.forward(images * 1000);
    }
    for (const int i : order) {
      const MicrobatchScope scope({i, 3, false, /*defers_statistics=*/true});
      norm.forward(images.narrow(0, firsts[i], kUneven[i]));
    }
    EXPECT_TRUE(norm.running_mean.equal(expected.running_mean)) << order[0];
    EXPECT_TRUE(norm.running_var.equal(expected.running_var)) << order[0];
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  }
}

// The formula itself, in double: mean and unbiased variance of all values.
TEST(BatchNorm2d, DeferredItFollowsPyTorchsFormula) {
  const at::Tensor images = Images();
  BatchNorm2d norm(kChannels);
  RunStep(norm, images, /*defers=*/true);
  const at::Tensor values = images.to(at::kDouble).transpose(0, 1).flatten(1);
  EXPECT_TRUE(at::allclose(norm.running_mean.to(at::kDouble),
                           values.mean(1) * 0.1, MeanTolerance(), 0));
  EXPECT_TRUE(at::allclose(norm.running_var.to(at::kDouble),
                           values.var(1) * 0.1 + 0.9, 1e-5, 0));
}

TEST(BatchNorm2d, DeferredItTouchesNothingBeforeTheLastMicrobatch) {
  BatchNorm2d norm(kChannels);
  const at::Tensor images = Images();
  for (int i = 0; i < 2; ++i) {
    const MicrobatchScope scope({i, 3, false, /*defers_statistics=*/true});
    norm.forward(images);
    EXPECT_TRUE(norm.running_mean.equal(at::zeros({kChannels})));
    EXPECT_TRUE(norm.running_var.equal(at::ones({kChannels})));
    EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 0);
  }
}

// A step that ended half-way (an error) leaves nothing behind for the next.
TEST(BatchNorm2d, TheFirstMicrobatchBeginsAnew) {
  BatchNorm2d norm(kChannels);
  BatchNorm2d expected(kChannels);
  const at::Tensor images = Images();
  {
    const MicrobatchScope scope({0, 2, false, /*defers_statistics=*/true});
    norm.forward(images * 1000);
  }
  RunStep(norm, images, /*defers=*/true);
  RunStep(expected, images, /*defers=*/true);
  EXPECT_TRUE(norm.running_var.equal(expected.running_var));
}

TEST(BatchNorm2d, RecomputingChangesNoStatistics) {
  const at::Tensor images = Images();
  for (const bool defers : {false, true}) {
    BatchNorm2d once(kChannels);
    BatchNorm2d twice(kChannels);
    RunStep(once, images, defers);
    RunStep(twice, images, defers, /*recomputes=*/true);
    EXPECT_TRUE(twice.running_mean.equal(once.running_mean));
    EXPECT_TRUE(twice.running_var.equal(once.running_var));
    EXPECT_TRUE(twice.num_batches_tracked.equal(once.num_batches_tracked));
    EXPECT_TRUE(twice.weight.grad().equal(once.weight.grad()));
    EXPECT_TRUE(twice.bias.grad().equal(once.bias.grad()));
  }
}

TEST(BatchNorm2d, OneMicrobatchIsTheWholeBatch) {
  BatchNorm2d norm(kChannels);
  BatchNorm2d expected(kChannels);
  const at::Tensor images = Images();
  expected.forward(images);
  const MicrobatchScope scope({0, 1, false, /*defers_statistics=*/true});
  norm.forward(images);
  EXPECT_TRUE(at::allclose(norm.running_mean, expected.running_mean,
                           MeanTolerance(), 0));
  EXPECT_TRUE(at::allclose(norm.running_var, expected.running_var, 1e-5, 0));
}

TEST(BatchNorm2d, DefersUnderASinkToo) {
  const at::Tensor images = Images();
  BatchNorm2d joint(kChannels);
  RunStep(joint, images, /*defers=*/true);
  BatchNorm2d split(kChannels);
  const auto sink = std::make_shared<WeightGradientSink>();
  {
    const WeightGradientSink::Scope scope(sink);
    RunStep(split, images, /*defers=*/true);
  }
  EXPECT_TRUE(split.running_var.equal(joint.running_var));
  EXPECT_EQ(sink->size(), 6u);
  ASSERT_TRUE(sink->Flush().ok());
  EXPECT_TRUE(at::allclose(split.weight.grad(), joint.weight.grad(), 1e-6, 0));
}

class BatchNorm2dOnDevices : public DeviceTypeTest {};

TEST_P(BatchNorm2dOnDevices, DefersToTheCpusBits) {
  const at::Tensor images = Images();
  BatchNorm2d expected(kChannels);
  RunStep(expected, images, /*defers=*/true);
  BatchNorm2d norm(kChannels);
  norm.to(TestDevice());
  RunStep(norm, images.to(TestDevice()), /*defers=*/true);
  EXPECT_TRUE(norm.running_mean.cpu().equal(expected.running_mean));
  EXPECT_TRUE(norm.running_var.cpu().equal(expected.running_var));
  EXPECT_TRUE(norm.weight.grad().cpu().equal(expected.weight.grad()));
}

TANDEM_ON_DEVICE_TYPES(BatchNorm2dOnDevices);

TEST(BatchNorm2d, EvaluationIgnoresTheScope) {
  BatchNorm2d norm(kChannels);
  norm.eval();
  const at::Tensor images = Images();
  const at::Tensor expected = norm.forward(images);
  const MicrobatchScope scope({0, 1, false, /*defers_statistics=*/true});
  EXPECT_TRUE(norm.forward(images).equal(expected));
  EXPECT_TRUE(norm.running_mean.equal(at::zeros({kChannels})));
}

TEST(BatchNorm2d, OneValueAChannelIsRefusedInTraining) {
  BatchNorm2d norm(kChannels);
  EXPECT_THROW(norm.forward(at::ones({1, kChannels, 1, 1})), c10::Error);
}

}  // namespace
}  // namespace tandem::batch_norm_2d_test
