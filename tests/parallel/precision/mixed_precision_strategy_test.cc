// Training in mixed precision, in layouts of the mesh. That the bits are those
// of one device whatever the layout, the layout matrix shows
// (tests/parallel/matrix).

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "models/layers/module_layer.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::mixed_precision_strategy_test {
namespace {

void InBf16(MeshStrategyOptions& options) {
  options.ddp.mixed_precision.param_dtype = at::kBFloat16;
}

LabLayout OneDevice() { return LabLayoutNamed("sequential 1x1x1", 4); }

LabLayout Hybrid() { return LabLayoutNamed("1f1b 2x2x1", 8); }

class ModelsInMixedPrecisionTest : public testing::TestWithParam<std::string> {
};

// A product's operands are rounded to 8 bits: half a unit is 2^-9 of each. A
// loss, a mean over many, keeps well below ten times that.
constexpr double kLossDistance = 10.0 / 512;

TEST_P(ModelsInMixedPrecisionTest, LossesAreNearThoseInFloat) {
  for (const LabLayout& layout : {OneDevice(), LabPipeline(2), Hybrid()}) {
    SCOPED_TRACE(layout.name);
    const auto low = TrainInLab(layout, ModelJob(GetParam(), 24, 6, InBf16));
    const auto wide = TrainInLab(layout, ModelJob(GetParam(), 24, 6));
    ASSERT_TRUE(low.ok()) << low.status();
    ASSERT_TRUE(wide.ok()) << wide.status();
    for (size_t i = 0; i < wide->scores.size(); ++i) {
      const double expected = wide->scores[i].loss_sum;
      EXPECT_NEAR(low->scores[i].loss_sum, expected, kLossDistance * expected);
      EXPECT_NE(low->scores[i].loss_sum, expected) << "not in bf16 at all";
    }
  }
}

TEST_P(ModelsInMixedPrecisionTest, WhatIsKeptIsFloat) {
  const auto low =
      TrainInLab(LabPipeline(2), ModelJob(GetParam(), 24, 2, InBf16));
  ASSERT_TRUE(low.ok()) << low.status();
  EXPECT_FALSE(low->model.empty());
  for (const TensorsByName& part : {low->model, low->optimizer}) {
    for (const auto& [name, tensor] : part) {
      EXPECT_TRUE(tensor.scalar_type() == at::kFloat ||
                  !at::isFloatingType(tensor.scalar_type()))
          << name;
    }
  }
}

TEST_P(ModelsInMixedPrecisionTest, EvaluationIsInItToo) {
  LabJob job = ModelJob(GetParam(), 24, 1, InBf16);
  job.test = 7;
  const auto low = TrainInLab(OneDevice(), job);
  LabJob in_float = ModelJob(GetParam(), 24, 1);
  in_float.test = 7;
  const auto wide = TrainInLab(OneDevice(), in_float);
  ASSERT_TRUE(low.ok() && wide.ok());
  EXPECT_NEAR(low->evaluation.loss_sum, wide->evaluation.loss_sum,
              kLossDistance * wide->evaluation.loss_sum);
  EXPECT_NE(low->evaluation.loss_sum, wide->evaluation.loss_sum);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsInMixedPrecisionTest,
                         testing::Values("mlp_small", "mlp_dropout",
                                         "gpt_tiny"),
                         [](const auto& info) { return info.param; });

// Which layers leave their weights' gradients for later, in either dtype.
TEST(MixedPrecisionStrategyTest, BackwardInTwoPartsIsThatInOne) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(at::toString(dtype), ", ranks: ", ranks));
      const LabJob job = ModelJob("gpt_tiny", 24, 2, [=](auto& options) {
        options.ddp.mixed_precision.param_dtype = dtype;
        options.reproducible = true;
      });
      LabLayout split = LabPipeline(2, ranks);
      split.schedule = "zb_h1";
      ExpectSameBits(TrainInLab(split, job),
                     TrainInLab(LabPipeline(2, ranks), job));
    }
  }
}

// A layer of LibTorch's own operators.
struct Plain : torch::nn::Module {
  Plain()
      : weight(register_parameter("weight", at::empty({5, 6}))),
        bias(register_parameter("bias", at::empty({5}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return at::linear(x, weight, bias);
  }
  at::Tensor weight, bias;
};

TEST(MixedPrecisionStrategyTest, ReachesLibTorchsOwnOperators) {
  LabJob job = ModelJob("mlp_small", 24, 2, InBf16);
  job.specs = [] {
    return LayerSpecs{ModuleLayer<Plain>(
        "plain", "Linear", [] { return std::make_shared<Plain>(); },
        [](const InitialParameter& parameter) {
          parameter.values.normal_(0, 0.1, parameter.generator);
        })};
  };
  std::vector<at::ScalarType> dtypes;
  job.loss = LossFunction::OfAnyPrecision(
      [&](const at::Tensor& outputs, const at::Tensor& targets) {
        dtypes.push_back(outputs.scalar_type());
        return CrossEntropy(outputs, targets);
      });
  const auto low = TrainInLab(OneDevice(), job);
  ASSERT_TRUE(low.ok()) << low.status();
  ASSERT_FALSE(dtypes.empty());
  for (const at::ScalarType each : dtypes) EXPECT_EQ(each, at::kBFloat16);
}

TEST(MixedPrecisionStrategyTest, OtherLossesGetFloats) {
  LabJob job = ModelJob("mlp_small", 24, 2, InBf16);
  std::vector<at::ScalarType> dtypes;
  job.loss = [&](const at::Tensor& outputs, const at::Tensor& targets) {
    dtypes.push_back(outputs.scalar_type());
    return CrossEntropy(outputs, targets);
  };
  const auto low = TrainInLab(OneDevice(), job);
  ASSERT_TRUE(low.ok()) << low.status();
  ASSERT_FALSE(dtypes.empty());
  for (const at::ScalarType each : dtypes) EXPECT_EQ(each, at::kFloat);
}

TEST(MixedPrecisionStrategyTest, GradientsTravelAsTheHookHasThem) {
  const LabLayout two = LabLayoutNamed("sequential 2x1x1", 2);
  const auto reduced =
      TrainInLab(two, ModelJob("mlp_small", 24, 3, [](auto& options) {
                   options.ddp.mixed_precision.reduce_dtype = at::kBFloat16;
                 }));
  const auto hooked =
      TrainInLab(two, ModelJob("mlp_small", 24, 3, [](auto& options) {
                   options.make_hook = [] { return Bf16CompressHook(); };
                 }));
  ExpectSameBits(reduced, hooked);
  const auto plain = TrainInLab(two, ModelJob("mlp_small", 24, 3));
  ASSERT_TRUE(plain.ok() && reduced.ok());
  EXPECT_FALSE(
      plain->model.begin()->second.equal(reduced->model.begin()->second));
}

TEST(MixedPrecisionStrategyTest, WhatDoesNotGoTogetherIsRefused) {
  ExpectRefusals(
      [](const LabChange& change) {
        return TrainInLab(OneDevice(), ModelJob("mlp_small", 24, 1, change))
            .status();
      },
      {{[](auto& o) { o.ddp.mixed_precision.param_dtype = at::kDouble; },
        "mixed_precision.param_dtype is Double"},
       {[](auto& o) {
          o.ddp.mixed_precision.reduce_dtype = at::kBFloat16;
          o.make_hook = [] { return AllReduceHook(); };
        },
        "leave one of them out"},
       {[](auto& o) {
          o.ddp.mixed_precision.reduce_dtype = at::kBFloat16;
          o.reproducible = true;
        },
        "reproducible excludes mixed_precision.reduce_dtype"}});
}

// A loss so small that fp16, whose least number is 2^-24, has no gradients of
// it.
TEST(GradScalerStrategyTest, KeepsGradientsThatFp16Loses) {
  const auto gradient = [](bool scales) {
    double greatest = 0;
    LabJob job = ModelJob("mlp_small", 24, 1, [=](auto& options) {
      options.ddp.mixed_precision.param_dtype = at::kHalf;
      if (scales) options.grad_scaler.emplace();
    });
    job.loss = [](const at::Tensor& outputs, const at::Tensor& targets) {
      LossResult result = CrossEntropy(outputs, targets);
      result.loss = result.loss * 1e-7;
      return result;
    };
    job.step = [&](const LabRank& rank, const Batch& batch,
                   int) -> absl::StatusOr<Score> {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              rank.strategy->ComputeGradients(batch));
      const NamedTensors gradients = rank.strategy->Gradients();
      greatest = gradients.front().second.abs().max().item<double>();
      TANDEM_RETURN_IF_ERROR(rank.strategy->Update(kLabRate));
      return score;
    };
    const auto done = TrainInLab(OneDevice(), job);
    EXPECT_TRUE(done.ok()) << done.status();
    return greatest;
  };
  EXPECT_EQ(gradient(/*scales=*/false), 0);
  EXPECT_GT(gradient(/*scales=*/true), 0);
}

}  // namespace
}  // namespace tandem::mixed_precision_strategy_test
