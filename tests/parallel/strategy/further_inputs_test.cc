// Models with several inputs, under every strategy; and that what does not fit
// one is refused by name.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/pipeline/rank_pipeline.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::further_inputs_test {
namespace {

constexpr uint64_t kSeed = 5;
constexpr double kRate = 0.1;
constexpr int kSteps = 3;
constexpr int64_t kSamples = 13;
constexpr int64_t kWidth = 6;
constexpr int64_t kTypes = 4;
constexpr int64_t kClasses = 5;

// Token types at the beginning, two further views in the middle, a mask twice,
// the second time in the last layer; and a skip connection.
LayerSpecs Specs() {
  LayerLinks types, views, leave, mask, last;
  types.reads = {"types"};
  views.reads = {"views[0]", "views[1]"};
  leave.stash = {"long"};
  mask.reads = {"mask"};
  last.pop = {"long"};
  last.reads = {"mask"};
  return {TanhLinear("fc", kWidth, kWidth),
          WithWeight(
              "types", {kTypes, kWidth}, types,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                return x + at::embedding(weight, skips.at("types"));
              }),
          WithWeight(
              "leave", {kWidth, kWidth}, leave,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                skips["long"] = x;
                return at::linear(x, weight).tanh();
              }),
          WithWeight(
              "views", {kWidth, kWidth}, views,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                const at::Tensor both =
                    skips.at("views[0]") - skips.at("views[1]");
                return x + at::linear(both, weight);
              }),
          WithWeight(
              "mask", {kWidth, kWidth}, mask,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                return at::linear(x * skips.at("mask"), weight);
              }),
          TanhLinear("between", kWidth, kWidth),
          WithWeight(
              "last", {kClasses, kWidth}, last,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                const at::Tensor past = skips.extract("long").mapped();
                return at::linear(x + past * skips.at("mask"), weight);
              })};
}

// kSamples with "types", "views" (two) and "mask".
Batch BatchOf(int number) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", number));
  const auto image = [&] { return at::randn({kSamples, kWidth}, generator); };
  Batch batch;
  batch.size = kSamples;
  batch.inputs = image();
  batch.targets = at::randint(kClasses, {kSamples}, generator, at::kLong);
  batch.further_inputs["types"] =
      at::randint(kTypes, {kSamples}, generator, at::kLong);
  batch.further_inputs["views"] =
      c10::ivalue::Tuple::create({image(), image()});
  batch.further_inputs["mask"] =
      at::rand({kSamples, kWidth}, generator).gt(0.3).to(at::kFloat);
  return batch;
}

LabJob Job(int64_t microbatch_size = 0) {
  LabJob job;
  job.specs = Specs;
  job.loss = CrossEntropy;
  job.change = [microbatch_size](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.microbatch_size = microbatch_size;
  };
  // The whole batch on each rank: gradients are its, and replicas' mean too.
  job.share = [](int step, int) { return BatchOf(step); };
  job.steps = kSteps;
  job.rate = kRate;
  return job;
}

constexpr int kTestNumber = 100;  // of a batch that is not trained on

// In which way the model in one piece goes through microbatches. Bits depend on
// it: sums have an order, and vectors begin where memory does.
struct Way {
  bool backward_from_last = false;  // as gpipe has it
  bool copies = false;              // each microbatch, as to another device
};

absl::StatusOr<at::Tensor> OutputOf(const LayerList& layers, const Batch& part,
                                    const Way& way) {
  TANDEM_ASSIGN_OR_RETURN(
      Skips further, NamedInputs(part, FurtherInputs(LinksByLayer(layers))));
  if (!way.copies) return Forward(layers, part.inputs, further);
  for (auto& each : further) each.second = each.second.clone();
  return Forward(layers, part.inputs.clone(), further);
}

absl::Status TrainInOnePiece(const LayerList& layers, const Batch& batch,
                             const std::vector<int64_t>& sizes, const Way& way,
                             Score* score) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> parts,
                          SplitBatch(batch, sizes));
  std::vector<at::Tensor> losses;
  for (const Batch& part : parts) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                            OutputOf(layers, part, way));
    const LossResult result = CrossEntropy(output, part.targets);
    const double weight =
        static_cast<double>(part.size) / static_cast<double>(batch.size);
    losses.push_back(weight == 1 ? result.loss : result.loss.mul(weight));
    *score += result.score;
  }
  if (way.backward_from_last) std::reverse(losses.begin(), losses.end());
  for (const at::Tensor& loss : losses) loss.backward();
  return absl::OkStatus();
}

absl::StatusOr<LabOutcome> InOnePiece(const std::vector<int64_t>& sizes,
                                      const Way& way = {}) {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  const FlatBuffers buffers = MakeFlatBuffers(NamedParameters(layers));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                          MakeOptimizer(SgdOptions{}, buffers));
  LabOutcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    Score score;
    TANDEM_RETURN_IF_ERROR(
        TrainInOnePiece(layers, BatchOf(step), sizes, way, &score));
    optimizer->Step(kRate);
    outcome.scores.push_back(score);
  }
  outcome.model = CopiesOf(NamedParameters(layers));
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(sizes.size());
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(BatchOf(kTestNumber), EvenSizes(kSamples, count)));
  std::vector<at::Tensor> outputs;
  for (const Batch& part : parts) {
    TANDEM_ASSIGN_OR_RETURN(outputs.emplace_back(),
                            OutputOf(layers, part, way));
  }
  outcome.model["outputs"] = at::cat(outputs);
  return outcome;
}

absl::StatusOr<LabOutcome> InStages(const LabLayout& layout,
                                    int64_t microbatch_size = 0) {
  LabJob job = Job(microbatch_size);
  job.sparing = true;
  at::Tensor outputs;
  job.end = [&](const LabRank& rank) -> absl::Status {
    auto& strategy = static_cast<MeshStrategy&>(*rank.strategy);
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor mine,
        strategy.Forward(TakenBy(strategy, BatchOf(kTestNumber))));
    if (mine.defined()) outputs = mine.cpu();
    return absl::OkStatus();
  };
  TANDEM_ASSIGN_OR_RETURN(LabOutcome outcome, TrainInLab(layout, job));
  outcome.model["outputs"] = outputs;
  return outcome;
}

class FurtherInputsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { SimDevices(4); }  // before any backward
};

TEST_F(FurtherInputsTest, EveryLayerIsTrained) {
  const auto outcome = InOnePiece({kSamples});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (const auto& [name, tensor] :
       NamedParameters(MakeLayers(Specs(), kSeed))) {
    EXPECT_FALSE(outcome->model.at(name).equal(tensor)) << name;
  }
}

TEST_F(FurtherInputsTest, APipelineHasTheBitsOfTheModelInOnePiece) {
  const auto expected = InOnePiece({4, 3, 3, 3});
  for (int stages = 1; stages <= 4; ++stages) {
    for (int ranks : {1, 2, 3, 4}) {
      if (stages % ranks != 0) continue;
      SCOPED_TRACE(absl::StrCat(stages, " stages on ", ranks, " ranks"));
      ExpectSameBits(InStages(LabPipeline(stages, ranks)), expected);
    }
  }
}

TEST_F(FurtherInputsTest, TheLastMicrobatchMayBeSmaller) {
  const auto expected = InOnePiece({5, 5, 3});
  for (int ranks : {1, 3}) {
    LabLayout layout = LabPipeline(3, ranks);
    layout.microbatches = 3;
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    ExpectSameBits(InStages(layout, /*microbatch_size=*/5), expected);
  }
}

TEST_F(FurtherInputsTest, SoItIsUnderOtherSchedulesAndCheckpointing) {
  for (const std::string schedule : {"gpipe", "zb_h1"}) {
    for (const auto checkpointing : {ActivationCheckpointing::kExceptLast,
                                     ActivationCheckpointing::kAlways}) {
      for (int ranks : {1, 2}) {
        LabLayout layout = LabPipeline(4, ranks);
        layout.schedule = schedule;
        layout.checkpointing = checkpointing;
        layout.backend = "gloo";
        if (ranks == 1) layout.device_pool = SimDevices(4);
        SCOPED_TRACE(absl::StrCat(schedule, " on ", ranks, " ranks"));
        ExpectSameBits(
            InStages(layout),
            InOnePiece({4, 3, 3, 3}, {schedule == "gpipe", ranks == 1}));
      }
    }
  }
}

// Whole replicas, in one piece or cut: `parts` microbatches on each rank.
absl::StatusOr<LabOutcome> InReplicas(int ranks, int parts, bool cut) {
  LabJob job = Job();
  if (cut) {
    job.change = [](MeshStrategyOptions& options) {
      options.seed = kSeed;
      options.cuts = {5};
    };
  }
  job.end = [](const LabRank& rank) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const Score test,
                            rank.strategy->Evaluate(BatchOf(kTestNumber)));
    EXPECT_EQ(test.count, kSamples);
    return absl::OkStatus();
  };
  TANDEM_ASSIGN_OR_RETURN(LabOutcome outcome,
                          TrainInLab(LabReplicas(ranks, parts, cut), job));
  // All ranks have the same samples: of one of them.
  for (Score& each : outcome.scores) {
    each = {each.loss_sum / ranks, each.correct / ranks, each.count / ranks};
  }
  return outcome;
}

TEST_F(FurtherInputsTest, ReplicasTrainThem) {
  for (int parts : {1, 4}) {
    for (bool cut : {false, true}) {
      auto expected = InOnePiece(EvenSizes(kSamples, parts), {false, cut});
      ASSERT_TRUE(expected.ok()) << expected.status();
      expected->model.erase("outputs");
      for (int ranks : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", parts, " parts, ",
                                  cut ? "cut" : "whole"));
        ExpectSameBits(InReplicas(ranks, parts, cut), expected);
      }
    }
  }
}

Batch WithFurther(const std::string& name, const c10::IValue& value) {
  Batch batch = BatchOf(0);
  batch.further_inputs[name] = value;
  return batch;
}

TEST(FurtherInputsErrorsTest, WhatDoesNotFitIsRefusedByName) {
  Batch without_mask = BatchOf(0);
  without_mask.further_inputs.erase("mask");
  ExpectBatchRefusals(
      Specs(), CrossEntropy, {1, 3},
      {{without_mask,
        "the further input 'mask', which the batch lacks; it has 'types', "
        "'views[0]', 'views[1]'"},
       {WithFurther("weights", at::ones({kSamples})),
        "'weights', which no layer reads"},
       {WithFurther("views", c10::ivalue::Tuple::create(
                                 {at::ones({kSamples, kWidth}),
                                  at::ones({kSamples - 1, kWidth})})),
        "a batch of 13 samples has Float [12, 6] as 'views[1]'"}});
  LayerSpecs specs = Specs();
  specs[3].links.reads = {"views[1]"};
  ExpectBatchRefusals(specs, CrossEntropy, {1, 3},
                      {{BatchOf(0), "'views[0]', which no layer reads"}});
}

TEST(FurtherInputsErrorsTest, WhatIsTakenMustBeLeftUnlessItIsRead) {
  LayerSpecs specs = Specs();
  specs[4].links.reads = {};
  specs[4].links.pop = {"mask"};
  const auto says = Says("'mask' of layer 4 is left by no layer before it");
  const MeshStrategyOptions options =
      LabOptions(LabPipeline(2), static_cast<int64_t>(specs.size()));
  EXPECT_THAT(
      MeshStrategy::Create(specs, CrossEntropy, options, nullptr).status(),
      says);
  EXPECT_THAT(RunThreadRanks(1,
                             [&](Communicator& world) {
                               return MakeReplicated(MakeLayers(specs, kSeed),
                                                     CrossEntropy, {}, world)
                                   .status();
                             }),
              says);
}

// Rank 0 has the batch; the others are told why there is no step.
TEST(FurtherInputsErrorsTest, EveryRankLearnsWhatDoesNotFit) {
  std::vector<absl::Status> said(2);
  ExpectOk(OnLabRanks(LabPipeline(2, 2), Job(), [&](const LabRank& rank) {
    Batch batch = TakenBy(*rank.strategy, BatchOf(0));
    batch.further_inputs.erase("types");
    said[static_cast<size_t>(rank.rank)] =
        rank.strategy->TrainStep(batch, kRate).status();
    return absl::OkStatus();
  }));
  for (const absl::Status& each : said) {
    EXPECT_THAT(each, Says("'types'"));
  }
}

}  // namespace
}  // namespace tandem::further_inputs_test
