// Divided layers of a model of one's own, and what a backward in two parts and
// activations that are computed again come to there.

#include "models/layers/tensor_parallel_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/layer_list.h"
#include "core/model/weight_gradient_sink.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/basic_modules.h"
#include "models/layers/dropout.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "tests/models/tensor_parallel_lab.h"

namespace tandem::tensor_parallel_linear_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kOfDoubles = 1e-13;
constexpr std::pair<int64_t, bool> kLayouts[] = {
    {2, false}, {2, true}, {3, false}, {3, true}, {4, true}};

// Two pairs, with what stands between them.
LayerSpecs OwnModel() {
  return {DivideTokensLayer("tokens"),
          LayerNormLayer("norm", 6),
          ColumnParallelLinearLayer("up", 6, 24),
          ReluLayer("relu"),
          RowParallelLinearLayer("down", 24, 6),
          DropoutLayer("drop", 0.2),
          ColumnParallelLinearLayer("up2", 6, 12, /*bias=*/false),
          RowParallelLinearLayer("down2", 12, 5, /*bias=*/false),
          JoinTokensLayer("all")};
}

TensorProblem OwnProblem() {
  TensorProblem problem;
  problem.specs = OwnModel();
  problem.loss = CrossEntropy;
  at::manual_seed(3);
  problem.inputs = at::randn({2, 12, 6});
  problem.targets = at::arange(24).remainder(5).view({2, 12});
  problem.wants_input_gradient = true;
  return problem;
}

TEST(TensorParallelLinearTest, AModelOfOnesOwnIsTheWholeOne) {
  const TensorStep whole = WholeStep(OwnProblem());
  for (const auto& [degree, sequence_parallel] : kLayouts) {
    SCOPED_TRACE(testing::Message() << degree << ' ' << sequence_parallel);
    ExpectSameStep(DividedStep(OwnProblem(), degree, sequence_parallel), whole,
                   kOfDoubles);
  }
}

TEST(TensorParallelLinearTest, OutsideOfAScopeTheyAreLinearLayers) {
  const LayerSpecs divided = {ColumnParallelLinearLayer("up", 6, 24),
                              RowParallelLinearLayer("down", 24, 6)};
  const LayerSpecs plain = {LinearLayer("up", 6, 24),
                            LinearLayer("down", 24, 6)};
  const at::Tensor x = at::randn({3, 5, 6});
  EXPECT_TRUE(Forward(MakeLayers(divided, 2), x)
                  .equal(Forward(MakeLayers(plain, 2), x)));
}

// Ranks 0 and 1 compute the first of two heads, 2 and 3 the second.
TEST(TensorParallelLinearTest, NeighboursComputeTheSameHeadWhereThereAreFew) {
  ColumnShape shape;
  shape.heads = 2;
  shape.replicates_heads = true;
  const auto whole = std::make_shared<Linear>(6, 8);
  const at::Tensor x = at::randn({3, 5, 6});
  ExpectOk(RunAxisRanks(4, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
    const auto linear = std::make_shared<ColumnParallelLinear>(shape, 6, 8);
    const at::NoGradGuard no_grad;
    linear->weight.copy_(whole->weight);
    linear->bias.copy_(whole->bias);
    const TraitsByName traits =
        linear->Divide(*MakeTensorParallel(group, false), "kv");
    EXPECT_EQ(linear->weight.size(0), 8);
    for (const char* name : {"weight", "bias"}) {
      EXPECT_FALSE(traits.at(name).shard.has_value());
      EXPECT_TRUE(traits.at(name).reduces_over("tensor"));
    }
    const int64_t first = 4 * (group->index() / 2);
    EXPECT_TRUE(
        linear->forward(x).allclose(whole->forward(x).narrow(2, first, 4)));
    EXPECT_TRUE(
        linear->Product(x).allclose(whole->Product(x).narrow(2, first, 4)));
    return absl::OkStatus();
  }));
}

std::string Refusal(const LayerSpecs& specs, int64_t degree,
                    const at::Tensor& x = {}) {
  return std::string(
      RunAxisRanks(degree, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
        const TensorParallelScope scope(MakeTensorParallel(group, true));
        const auto layers = MakeModelLayers(specs, 1);
        if (layers.ok() && x.defined()) Forward(*layers, x);
        return layers.status();
      }).message());
}

TEST(TensorParallelLinearTest, SizesThatDoNotFitAreRefusedByName) {
  EXPECT_THAT(Refusal({ColumnParallelLinearLayer("up", 6, 10)}, 3),
              HasSubstr("up has 10 outputs, which 3 ranks along tensor cannot "
                        "share evenly: choose a degree that divides 10"));
  EXPECT_THAT(Refusal({RowParallelLinearLayer("down", 10, 6)}, 3),
              HasSubstr("down has 10 inputs, which 3 ranks"));
  EXPECT_THAT(Refusal({LinearLayer("plain", 6, 6)}, 3),
              HasSubstr("knows nothing of sequence parallelism along tensor"));
  EXPECT_THAT(
      Refusal({DivideTokensLayer("tokens")}, 3, at::randn({2, 4, 6})),
      HasSubstr("tokens: samples of 4 tokens cannot be divided over 3 ranks"));
}

// Weights' gradients that are left for later are those of a joint backward, and
// nothing is sent when they are computed: others may be elsewhere then.
TEST(TensorParallelLinearTest, ABackwardInTwoPartsSendsInTheFirst) {
  for (const auto& [degree, sequence_parallel] : kLayouts) {
    TensorProblem problem = OwnProblem();
    problem.dtype = at::kFloat;
    const TensorStep joint = DividedStep(problem, degree, sequence_parallel);
    problem.splits_backward = true;
    const TensorStep split = DividedStep(problem, degree, sequence_parallel);
    ExpectSameStep(split, joint, 0);
    EXPECT_EQ(split.backward, joint.backward);
    EXPECT_THAT(split.backward, Not(IsEmpty()));
    EXPECT_THAT(split.late, IsEmpty());
  }
}

LayerSpecs Checkpointed(LayerSpecs specs, bool use_reentrant) {
  CheckpointOptions options;
  options.use_reentrant = use_reentrant;
  return MadeThrough(
      [options](auto make) {
        Layer layer = make();
        layer.forward = [forward = layer.forward,
                         options](const at::Tensor& x) {
          return Checkpoint(options, forward, x);
        };
        return layer;
      },
      std::move(specs));
}

TEST(TensorParallelLinearTest, ActivationsMayBeComputedAgain) {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = 12;
  options.context = 12;
  options.vocabulary = 31;
  options.dropout = 0.2;
  TensorParallelLossOptions loss;
  loss.classes = 31;
  TensorProblem problem;
  problem.loss = TensorParallelCrossEntropy(loss);
  problem.inputs = at::arange(24).remainder(31).view({2, 12});
  problem.targets = (problem.inputs * 7 + 1) % 31;
  problem.specs = *Gpt(options);
  const TensorStep whole = WholeStep(problem);
  for (const auto& [degree, sequence_parallel] : kLayouts) {
    for (const bool use_reentrant : {false, true}) {
      SCOPED_TRACE(testing::Message() << degree << ' ' << sequence_parallel
                                      << ' ' << use_reentrant);
      TensorProblem again = problem;
      for (size_t i = 2; i < 4; ++i) {
        again.specs[i] = Checkpointed({again.specs[i]}, use_reentrant)[0];
      }
      ExpectSameStep(DividedStep(again, degree, sequence_parallel), whole,
                     kOfDoubles);
    }
  }
}

}  // namespace
}  // namespace tandem::tensor_parallel_linear_test
