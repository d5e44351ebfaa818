// Models with several inputs, under every strategy.

#include <ATen/Tensor.h>
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
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/balance/cut.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/sequential.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/gather_on_rank0.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 5;
constexpr double kRate = 0.1;
constexpr int kSteps = 3;
constexpr int64_t kWidth = 6;
constexpr int64_t kTypes = 4;
constexpr int64_t kClasses = 5;

using Compute = std::function<at::Tensor(const at::Tensor& weight,
                                         const at::Tensor& x, Skips& skips)>;

// A layer with one parameter, whose values are a function of seed and name.
LayerSpec WithWeight(const std::string& name, std::vector<int64_t> shape,
                     LayerLinks links, const Compute& compute) {
  const auto make = [=](uint64_t seed) {
    auto module = std::make_shared<torch::nn::Module>();
    module->register_parameter(
        "weight", at::randn(shape, GeneratorFor(seed, name)).mul(0.4));
    Layer layer{name, module, nullptr};
    layer.forward_with_skips = [=](const at::Tensor& x, Skips& skips) {
      return compute(module->parameters()[0], x, skips);
    };
    layer.forward = [run = layer.forward_with_skips](const at::Tensor& x) {
      Skips none;
      return run(x, none);
    };
    return layer;
  };
  return {name, "WithWeight", make, std::move(links)};
}

// Token types at the beginning, two further views in the middle, a mask twice,
// the second time in the last layer; and a skip connection.
LayerSpecs Specs() {
  const auto linear = [](const at::Tensor& weight, const at::Tensor& x,
                         Skips&) { return at::linear(x, weight).tanh(); };
  LayerLinks types, views, leave, mask, last;
  types.reads = {"types"};
  views.reads = {"views[0]", "views[1]"};
  leave.stash = {"long"};
  mask.reads = {"mask"};
  last.pop = {"long"};
  last.reads = {"mask"};
  return {WithWeight("fc", {kWidth, kWidth}, {}, linear),
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
          WithWeight("between", {kWidth, kWidth}, {}, linear),
          WithWeight(
              "last", {kClasses, kWidth}, last,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                const at::Tensor past = skips.extract("long").mapped();
                return at::linear(x + past * skips.at("mask"), weight);
              })};
}

Batch BatchOf(int number, int64_t size) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", number));
  const auto image = [&] { return at::randn({size, kWidth}, generator); };
  Batch batch;
  batch.size = size;
  batch.inputs = image();
  batch.targets = at::randint(kClasses, {size}, generator, at::kLong);
  batch.further_inputs["types"] =
      at::randint(kTypes, {size}, generator, at::kLong);
  batch.further_inputs["views"] =
      c10::ivalue::Tuple::create({image(), image()});
  batch.further_inputs["mask"] =
      at::rand({size, kWidth}, generator).gt(0.3).to(at::kFloat);
  return batch;
}

constexpr int64_t kSamples = 13;
constexpr int kTestNumber = 100;  // of a batch that is not trained on

// What training comes to.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> tensors;  // weights, gradients, outputs
};

void Note(const NamedTensors& parameters, Outcome* outcome) {
  for (const auto& [name, tensor] : parameters) {
    outcome->tensors[name] = tensor.detach().cpu().clone();
  }
}

// In which way the model in one piece goes through microbatches. Bits depend on
// it: sums have an order, and vectors begin where memory does.
struct Way {
  bool backward_from_last = false;  // as gpipe has it
  bool copies = false;              // each microbatch, as to another device
};

absl::StatusOr<at::Tensor> OutputOf(const LayerList& layers, const Batch& part,
                                    const Way& way) {
  TANDEM_ASSIGN_OR_RETURN(Skips further,
                          NamedInputs(part, FurtherInputs(LinksOf(layers))));
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

absl::StatusOr<Outcome> InOnePiece(const std::vector<int64_t>& sizes,
                                   const Way& way = {}) {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  const FlatBuffers buffers = MakeFlatBuffers(NamedParameters(layers));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                          MakeOptimizer(SgdOptions{}, buffers));
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& buffer : buffers) buffer->ZeroGrad();
    Score score;
    TANDEM_RETURN_IF_ERROR(
        TrainInOnePiece(layers, BatchOf(step, kSamples), sizes, way, &score));
    optimizer->Step(kRate);
    outcome.losses.push_back(score.loss());
  }
  Note(NamedParameters(layers), &outcome);
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(sizes.size());
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(BatchOf(kTestNumber, kSamples), EvenSizes(kSamples, count)));
  std::vector<at::Tensor> outputs;
  for (const Batch& part : parts) {
    TANDEM_ASSIGN_OR_RETURN(outputs.emplace_back(),
                            OutputOf(layers, part, way));
  }
  outcome.tensors["outputs"] = at::cat(outputs);
  return outcome;
}

struct Layout {
  std::string schedule = "1f1b";
  int stages = 1;
  int ranks = 1;
  int microbatches = 4;
  int64_t microbatch_size = 0;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
  std::string backend = "shm";
  std::string device = "cpu";
};

MeshStrategyOptions OptionsOf(const Layout& layout, int rank) {
  MeshStrategyOptions options;
  options.schedule =
      *MakeSchedule(layout.schedule, {layout.stages, 1, layout.microbatches});
  options.cuts =
      *UniformCuts(static_cast<int64_t>(Specs().size()), layout.stages);
  const int here = layout.stages / layout.ranks;
  options.devices.assign(static_cast<size_t>(here), c10::kCPU);
  for (int i = 0; i < here && layout.device == "sim"; ++i) {
    options.devices[static_cast<size_t>(i)] = SimDevices(4)[rank * here + i];
  }
  options.microbatch_size = layout.microbatch_size;
  options.pipeline.checkpointing = layout.checkpointing;
  options.seed = kSeed;
  return options;
}

// What a rank is given: the first stage's the inputs, the last one's the
// targets.
Batch PartFor(Batch batch, bool has_first, bool has_last) {
  if (!has_first) {
    batch.inputs = at::Tensor();
    batch.further_inputs.clear();
  }
  if (!has_last) batch.targets = at::Tensor();
  return batch;
}

absl::Status TrainInStages(const Layout& layout, Communicator* pipe,
                           Outcome* outcome) {
  const int rank = pipe == nullptr ? 0 : pipe->rank();
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<MeshStrategy> strategy,
                          MeshStrategy::Create(Specs(), CrossEntropy,
                                               OptionsOf(layout, rank), pipe));
  const auto part_of = [&](int number) {
    return PartFor(BatchOf(number, kSamples), rank == 0,
                   strategy->executor().has_last_stage());
  };
  Outcome mine;
  for (int step = 0; step < kSteps; ++step) {
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            strategy->TrainStep(part_of(step), kRate));
    mine.losses.push_back(score.loss());
  }
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                          strategy->Forward(part_of(kTestNumber)));
  NamedTensors all = strategy->Parameters();
  if (outputs.defined()) all.emplace_back("outputs", outputs);
  if (pipe != nullptr) {
    for (auto& each : all) each.second = each.second.detach().cpu();
    TANDEM_ASSIGN_OR_RETURN(all, GatherOnRank0(all, *pipe));
  }
  Note(all, &mine);
  if (rank == 0) *outcome = std::move(mine);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> InStages(const Layout& layout) {
  Outcome outcome;
  if (layout.ranks == 1) {
    TANDEM_RETURN_IF_ERROR(TrainInStages(layout, nullptr, &outcome));
    return outcome;
  }
  CommunicatorOptions options;
  options.backend = layout.backend;
  options.all_local = true;
  options.timeout = std::chrono::seconds(60);
  TANDEM_RETURN_IF_ERROR(RunThreadRanks(
      layout.ranks,
      [&](Communicator& world) {
        return TrainInStages(layout, &world, &outcome);
      },
      options));
  return outcome;
}

void ExpectSameBits(const absl::StatusOr<Outcome>& found,
                    const absl::StatusOr<Outcome>& expected) {
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(found->losses, expected->losses);
  ASSERT_EQ(found->tensors.size(), expected->tensors.size());
  for (const auto& [name, tensor] : expected->tensors) {
    ASSERT_EQ(found->tensors.count(name), 1u) << name;
    EXPECT_TRUE(found->tensors.at(name).equal(tensor)) << name;
  }
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
    EXPECT_FALSE(outcome->tensors.at(name).equal(tensor)) << name;
  }
}

TEST_F(FurtherInputsTest, APipelineHasTheBitsOfTheModelInOnePiece) {
  const auto expected = InOnePiece({4, 3, 3, 3});
  for (int stages = 1; stages <= 4; ++stages) {
    for (int ranks : {1, 2, 3, 4}) {
      if (stages % ranks != 0) continue;
      Layout layout;
      layout.stages = stages;
      layout.ranks = ranks;
      SCOPED_TRACE(absl::StrCat(stages, " stages on ", ranks, " ranks"));
      ExpectSameBits(InStages(layout), expected);
    }
  }
}

TEST_F(FurtherInputsTest, TheLastMicrobatchMayBeSmaller) {
  const auto expected = InOnePiece({5, 5, 3});
  for (int ranks : {1, 3}) {
    Layout layout;
    layout.stages = 3;
    layout.ranks = ranks;
    layout.microbatches = 3;
    layout.microbatch_size = 5;
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    ExpectSameBits(InStages(layout), expected);
  }
}

TEST_F(FurtherInputsTest, SoItIsUnderOtherSchedulesAndCheckpointing) {
  for (const std::string schedule : {"gpipe", "zb_h1"}) {
    for (const auto checkpointing : {ActivationCheckpointing::kExceptLast,
                                     ActivationCheckpointing::kAlways}) {
      for (int ranks : {1, 2}) {
        Layout layout;
        layout.schedule = schedule;
        layout.stages = 4;
        layout.ranks = ranks;
        layout.checkpointing = checkpointing;
        layout.backend = "gloo";
        layout.device = ranks == 1 ? "sim" : "cpu";
        SCOPED_TRACE(absl::StrCat(schedule, " on ", ranks, " ranks"));
        ExpectSameBits(
            InStages(layout),
            InOnePiece({4, 3, 3, 3}, {schedule == "gpipe", ranks == 1}));
      }
    }
  }
}

// Whole replicas, in one piece or cut: `parts` microbatches on each rank.
absl::StatusOr<Outcome> InReplicas(int ranks, int64_t parts, bool cut) {
  const std::vector<c10::Device> devices = SimDevices(4);
  Outcome outcome;
  TANDEM_RETURN_IF_ERROR(
      RunThreadRanks(ranks, [&](Communicator& world) -> absl::Status {
        MeshStrategyOptions options;
        options.seed = kSeed;
        TANDEM_ASSIGN_OR_RETURN(
            options.schedule,
            SequentialSchedule(cut ? 2 : 1, static_cast<int>(parts)));
        if (cut) {
          options.cuts = {5};
          const auto first = devices.begin() + 2 * world.rank();
          options.devices = {first, first + 2};
        }
        TANDEM_ASSIGN_OR_RETURN(
            const auto strategy,
            MeshStrategy::Create(Specs(), CrossEntropy, options, &world));
        Outcome mine;
        for (int step = 0; step < kSteps; ++step) {
          // The whole batch on each rank: gradients are its, and the mean too.
          TANDEM_ASSIGN_OR_RETURN(
              const Score score,
              strategy->TrainStep(BatchOf(step, kSamples), kRate));
          mine.losses.push_back(score.loss());
        }
        TANDEM_ASSIGN_OR_RETURN(const Score test, strategy->Evaluate(BatchOf(
                                                      kTestNumber, kSamples)));
        EXPECT_EQ(test.count, kSamples);
        Note(strategy->Parameters(), &mine);
        if (world.rank() == 0) outcome = std::move(mine);
        return absl::OkStatus();
      }));
  return outcome;
}

TEST_F(FurtherInputsTest, ReplicasTrainThem) {
  for (int64_t parts : {1, 4}) {
    for (bool cut : {false, true}) {
      auto expected = InOnePiece(EvenSizes(kSamples, parts), {false, cut});
      ASSERT_TRUE(expected.ok()) << expected.status();
      expected->tensors.erase("outputs");
      for (int ranks : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", parts, " parts, ",
                                  cut ? "cut" : "whole"));
        ExpectSameBits(InReplicas(ranks, parts, cut), expected);
      }
    }
  }
}

// What a strategy says of a batch: that of a pipeline of two stages, and that
// of one replica.
std::vector<std::string> SaidOf(const LayerSpecs& specs, const Batch& batch) {
  std::vector<std::string> said;
  const auto note = [&](Strategy* strategy) {
    for (const absl::Status& status :
         {strategy->TrainStep(batch, kRate).status(),
          strategy->Evaluate(batch).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      said.push_back(std::string(status.message()));
    }
  };
  Layout layout;
  layout.stages = 2;
  const auto pipelined =
      MeshStrategy::Create(specs, CrossEntropy, OptionsOf(layout, 0), nullptr);
  EXPECT_TRUE(pipelined.ok()) << pipelined.status();
  if (pipelined.ok()) note(pipelined->get());
  for (int64_t parts : {1, 3}) {
    const absl::Status status =
        RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
          ReplicatedOptions options;
          options.accumulation_steps = parts;
          TANDEM_ASSIGN_OR_RETURN(const auto strategy,
                                  MakeReplicated(MakeLayers(specs, kSeed),
                                                 CrossEntropy, options, world));
          note(strategy.get());
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
  }
  return said;
}

TEST_F(FurtherInputsTest, WhatDoesNotFitIsRefusedByName) {
  Batch batch = BatchOf(0, kSamples);
  batch.further_inputs.erase("mask");
  for (const std::string& said : SaidOf(Specs(), batch)) {
    EXPECT_THAT(said, HasSubstr("the further input 'mask', which the batch "
                                "lacks; it has 'types', 'views[0]', "
                                "'views[1]'"));
  }
  batch = BatchOf(0, kSamples);
  batch.further_inputs["weights"] = at::ones({kSamples});
  for (const std::string& said : SaidOf(Specs(), batch)) {
    EXPECT_THAT(said, HasSubstr("'weights', which no layer reads"));
  }
  LayerSpecs specs = Specs();
  specs[3].links.reads = {"views[1]"};
  for (const std::string& said : SaidOf(specs, BatchOf(0, kSamples))) {
    EXPECT_THAT(said, HasSubstr("'views[0]', which no layer reads"));
  }
  batch = BatchOf(0, kSamples);
  batch.further_inputs["views"] = c10::ivalue::Tuple::create(
      {at::ones({kSamples, kWidth}), at::ones({kSamples - 1, kWidth})});
  for (const std::string& said : SaidOf(Specs(), batch)) {
    EXPECT_THAT(said, HasSubstr("a batch of 13 samples has Float [12, 6] as "
                                "'views[1]'"));
  }
}

TEST_F(FurtherInputsTest, WhatIsTakenMustBeLeftUnlessItIsRead) {
  LayerSpecs specs = Specs();
  specs[4].links.reads = {};
  specs[4].links.pop = {"mask"};
  Layout layout;
  layout.stages = 2;
  EXPECT_THAT(std::string(MeshStrategy::Create(specs, CrossEntropy,
                                               OptionsOf(layout, 0), nullptr)
                              .status()
                              .message()),
              HasSubstr("'mask' of layer 4 is left by no layer before it"));
  const absl::Status status =
      RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
        return MakeReplicated(MakeLayers(specs, kSeed), CrossEntropy, {}, world)
            .status();
      });
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'mask' of layer 4 is left by no layer before it"));
}

// Rank 0 has the batch; the others are told why there is no step.
TEST_F(FurtherInputsTest, EveryRankLearnsWhatDoesNotFit) {
  std::vector<absl::Status> said(2);
  CommunicatorOptions communication;
  communication.backend = "shm";
  communication.all_local = true;
  communication.timeout = std::chrono::seconds(20);
  const absl::Status status = RunThreadRanks(
      2,
      [&](Communicator& world) -> absl::Status {
        Layout layout;
        layout.stages = 2;
        layout.ranks = 2;
        TANDEM_ASSIGN_OR_RETURN(
            const auto strategy,
            MeshStrategy::Create(Specs(), CrossEntropy,
                                 OptionsOf(layout, world.rank()), &world));
        Batch batch =
            PartFor(BatchOf(0, kSamples), world.rank() == 0, world.rank() == 1);
        batch.further_inputs.erase("types");
        said[static_cast<size_t>(world.rank())] =
            strategy->TrainStep(batch, kRate).status();
        return absl::OkStatus();
      },
      communication);
  EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& each : said) {
    EXPECT_THAT(std::string(each.message()), HasSubstr("'types'"));
  }
}

}  // namespace
}  // namespace tandem
