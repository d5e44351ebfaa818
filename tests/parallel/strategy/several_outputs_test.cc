// Losses of several outputs and targets, under every strategy.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/pipeline/rank_pipeline.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::several_outputs_test {
namespace {

constexpr uint64_t kSeed = 7;
constexpr double kRate = 0.1;
constexpr int kSteps = 3;
constexpr int kTestNumber = 100;  // of a batch that is not trained on
constexpr int64_t kSamples = 12;
constexpr int64_t kWidth = 6;
constexpr int64_t kKinds = 4;
constexpr int64_t kClasses = 5;

// A second head early on, for the loss alone; and a tensor that a layer takes,
// and the loss as well.
LayerSpecs Specs() {
  LayerLinks head, leaves, last;
  head.stash = {"head"};
  leaves.stash = {"shared"};
  last.pop = {"shared"};
  return {TanhLinear("fc1", kWidth, kWidth),
          WithWeight(
              "head", {kKinds, kWidth}, head,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                skips["head"] = at::linear(x, weight);
                return x;
              }),
          WithWeight(
              "fc2", {kWidth, kWidth}, leaves,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                skips["shared"] = at::linear(x, weight).tanh();
                return skips["shared"];
              }),
          TanhLinear("fc3", kWidth, kWidth),
          TanhLinear("fc4", kWidth, kWidth),
          WithWeight(
              "last", {kClasses, kWidth}, last,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                return at::linear(x + skips.at("shared"), weight);
              })};
}

const LossNames& Names() {
  static const auto* names =
      new LossNames{{"head", "shared"}, {"kinds", "boxes[0]"}};
  return *names;
}

// Scores are those of the main output.
LossResult SumOfLosses(const LossArguments& arguments,
                       const LossFunction& of_kinds) {
  LossResult result = CrossEntropy(arguments.outputs, arguments.targets);
  const at::Tensor kinds = of_kinds(arguments.further_outputs.at("head"),
                                    arguments.further_targets.at("kinds"))
                               .loss;
  const at::Tensor boxes =
      at::mse_loss(arguments.further_outputs.at("shared"),
                   arguments.further_targets.at("boxes[0]"));
  result.loss = result.loss + kinds * 0.5 + boxes * 0.25;
  return result;
}

LossFunction Loss() {
  return LossFunction(Names(), [](const LossArguments& arguments) {
    return SumOfLosses(arguments, CrossEntropy);
  });
}

Batch BatchOf(int number) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", number));
  Batch batch;
  batch.size = kSamples;
  batch.inputs = at::randn({kSamples, kWidth}, generator);
  batch.targets = at::randint(kClasses, {kSamples}, generator, at::kLong);
  batch.further_targets["kinds"] =
      at::randint(kKinds, {kSamples}, generator, at::kLong);
  batch.further_targets["boxes"] =
      c10::ivalue::Tuple::create({at::randn({kSamples, kWidth}, generator)});
  return batch;
}

absl::StatusOr<LossResult> LossOf(const LayerList& layers,
                                  const LossFunction& loss, const Batch& part) {
  TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                          BatchTargets(part, loss.names()));
  const auto [output, further] =
      ForwardWithSkips(layers, part.inputs, {}, loss.names().outputs);
  return loss(MakeLossArguments(output, further, targets));
}

// The layers one after the other, without any strategy. Bits depend on where
// vectors begin in memory: `copies` has it as a copy to another device would.
absl::StatusOr<LabOutcome> InOnePiece(int64_t microbatches,
                                      const LossFunction& loss = Loss(),
                                      bool copies = false) {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  const FlatBuffers buffers = MakeFlatBuffers(NamedParameters(layers));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                          MakeOptimizer(SgdOptions{}, buffers));
  const std::vector<int64_t> sizes = EvenSizes(kSamples, microbatches);
  LabOutcome outcome;
  const auto through = [&](int number, bool trains) -> absl::StatusOr<Score> {
    Score score;
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> parts,
                            SplitBatch(BatchOf(number), sizes));
    for (Batch part : parts) {
      if (copies) part.inputs = part.inputs.clone();
      TANDEM_ASSIGN_OR_RETURN(const LossResult result,
                              LossOf(layers, loss, part));
      score += result.score;
      const double weight = 1.0 / static_cast<double>(microbatches);
      if (trains) WeighLoss(result.loss, weight, {}).backward();
    }
    return score;
  };
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(outcome.scores.emplace_back(), through(step, true));
    optimizer->Step(kRate);
  }
  TANDEM_ASSIGN_OR_RETURN(outcome.evaluation, through(kTestNumber, false));
  outcome.model = CopiesOf(NamedParameters(layers));
  return outcome;
}

LabLayout TwoByTwo() {
  LabLayout layout = LabPipeline(2, 2);
  layout.replicas = 2;
  return layout;
}

LabJob Job(const LossFunction& loss, bool reproducible = false) {
  LabJob job;
  job.specs = Specs;
  job.loss = loss;
  job.change = [reproducible](MeshStrategyOptions& options) {
    options.reproducible = reproducible;
    options.seed = kSeed;
  };
  job.batch = BatchOf;
  job.sparing = true;
  job.steps = kSteps;
  job.rate = kRate;
  job.test = kTestNumber;
  return job;
}

absl::StatusOr<LabOutcome> Trained(const LabLayout& layout,
                                   const LossFunction& loss = Loss(),
                                   bool reproducible = false) {
  return TrainInLab(layout, Job(loss, reproducible));
}

MeshStrategyOptions OptionsOf(const LabLayout& layout) {
  return LabOptions(layout, static_cast<int64_t>(Specs().size()));
}

class SeveralOutputsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(4); }  // before any backward
};

TEST_F(SeveralOutputsTest, EveryLayerIsTrained) {
  const auto outcome = InOnePiece(1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (const auto& [name, tensor] :
       NamedParameters(MakeLayers(Specs(), kSeed))) {
    EXPECT_FALSE(outcome->model.at(name).equal(tensor)) << name;
  }
}

TEST_F(SeveralOutputsTest, OneReplicaHasTheBitsOfTheLayersAlone) {
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut ? "cut" : "whole");
    ExpectSameBits(Trained(LabReplicas(1, 1, cut)), InOnePiece(1));
  }
}

TEST_F(SeveralOutputsTest, ReplicasTrainTheWholeBatch) {
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut ? "cut" : "whole");
    ExpectClose(Trained(LabReplicas(2, 2, cut)), InOnePiece(1));
  }
}

TEST_F(SeveralOutputsTest, APipelineHasTheBitsOfTheModelInOnePiece) {
  for (const int ranks : {1, 3}) {
    const auto expected = InOnePiece(4, Loss(), ranks == 1);
    for (const std::string schedule : {"1f1b", "zb_h1"}) {
      for (const auto checkpointing : {ActivationCheckpointing::kNever,
                                       ActivationCheckpointing::kExceptLast,
                                       ActivationCheckpointing::kAlways}) {
        LabLayout layout = LabPipeline(3, ranks);
        layout.schedule = schedule;
        layout.checkpointing = checkpointing;
        if (ranks == 1) layout.device_pool = SimDevices(4);
        SCOPED_TRACE(absl::StrCat(schedule, " on ", ranks, " ranks, ",
                                  static_cast<int>(checkpointing)));
        ExpectSameBits(Trained(layout), expected);
      }
    }
  }
}

TEST_F(SeveralOutputsTest, AHybridTrainsTheWholeBatch) {
  ExpectClose(Trained(TwoByTwo()), InOnePiece(1));
}

TEST_F(SeveralOutputsTest, ReproducibleBitsDoNotDependOnTheLayout) {
  const auto expected = Trained(LabPipeline(1), Loss(), true);
  ExpectClose(expected, InOnePiece(1));
  ExpectSameBits(Trained(LabPipeline(3), Loss(), true), expected);
  ExpectSameBits(Trained(TwoByTwo(), Loss(), true), expected);
}

// The weight is of a further target alone, of which one microbatch has none.
TEST_F(SeveralOutputsTest, AWeightMayBeOfFurtherTargets) {
  const LossFunction of_kinds = CrossEntropyIgnoring(0);
  const LossFunction loss(
      {{"head", "shared"}, {"kinds", "boxes[0]"}},
      [of_kinds](const LossArguments& arguments) {
        LossResult result = of_kinds(arguments.further_outputs.at("head"),
                                     arguments.further_targets.at("kinds"));
        result.loss = result.loss + 0 * arguments.outputs.sum() +
                      0 * arguments.further_outputs.at("shared").sum();
        return result;
      },
      [of_kinds](const LossTargets& targets) {
        return of_kinds.weight()(targets.further.at("kinds"));
      });
  const auto expected = InOnePiece(1, loss);
  LabLayout pipeline = LabPipeline(3);
  pipeline.microbatches = 12;  // of one sample each: some weigh nothing
  ExpectClose(Trained(pipeline, loss), expected);
  ExpectClose(Trained(TwoByTwo(), loss), expected);
  ExpectClose(Trained(LabReplicas(2, 6, false), loss), expected);
}

TEST_F(SeveralOutputsTest, ZLossGoesAroundIt) {
  const LossFunction loss = WithZLoss(Loss(), 1e-3);
  EXPECT_EQ(loss.names().outputs, Names().outputs);
  const auto found = Trained(LabPipeline(3), loss);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->model.at("last.weight")
                   .equal(InOnePiece(4)->model.at("last.weight")));
}

// By three strategies, when they are made.
void ExpectLossRefused(const LossFunction& loss, const std::string& says) {
  EXPECT_THAT(
      MeshStrategy::Create(Specs(), loss, OptionsOf(LabPipeline(2)), nullptr)
          .status(),
      InvalidArgument(says));
  EXPECT_THAT(SpreadOverDevices(MakeLayers(Specs(), kSeed), {3},
                                {SimDevices(4)[0], SimDevices(4)[1]},
                                loss.names().outputs)
                  .status(),
              InvalidArgument(says));
  EXPECT_THAT(RunThreadRanks(1,
                             [&](Communicator& world) {
                               return MakeReplicated(MakeLayers(Specs(), kSeed),
                                                     loss, {}, world)
                                   .status();
                             }),
              InvalidArgument(says));
}

TEST_F(SeveralOutputsTest, WhatIsTakenMustBeLeftAndTheReverse) {
  const LossFunction takes_more(LossNames{{"head", "shared", "nobody's"}, {}},
                                [](const LossArguments& arguments) {
                                  return CrossEntropy(arguments.outputs,
                                                      arguments.targets);
                                });
  ExpectLossRefused(takes_more,
                    "the loss takes 'nobody's', which no layer leaves; they "
                    "leave 'head', 'shared'");
  ExpectLossRefused(CrossEntropy,
                    "'head' of layer 1 is taken by no layer after it, nor by "
                    "the loss");
}

Batch WithFurther(const std::string& name, const at::Tensor& targets) {
  Batch batch = BatchOf(0);
  batch.further_targets[name] = targets;
  return batch;
}

TEST_F(SeveralOutputsTest, TargetsThatDoNotFitAreRefusedByName) {
  Batch without_kinds = BatchOf(0);
  without_kinds.further_targets.erase("kinds");
  ExpectBatchRefusals(
      Specs(), Loss(), {1},
      {{without_kinds,
        "the loss reads the further target 'kinds', which the batch lacks; it "
        "has 'boxes[0]'"},
       {WithFurther("more", at::ones({kSamples})),
        "the further target 'more', which the loss does not read; it reads "
        "'kinds', 'boxes[0]'"},
       {WithFurther("kinds", at::ones({kSamples - 1}, at::kLong)),
        "12 samples has Long [11] as 'kinds'"}});
}

TEST_F(SeveralOutputsTest, RanksMustTakeTheSame) {
  const absl::Status status = RunThreadRanks(2, [](Communicator& world) {
    const LossFunction loss = world.rank() == 0 ? CrossEntropy : Loss();
    return MeshStrategy::Create(Specs(), loss, OptionsOf(LabPipeline(2, 2)),
                                &world)
        .status();
  });
  EXPECT_THAT(status, Says("loss's outputs", "head,shared"));
}

}  // namespace
}  // namespace tandem::several_outputs_test
