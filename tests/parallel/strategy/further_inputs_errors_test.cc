// What does not fit a model with several inputs is refused by name.

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/further_inputs_model.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::further_inputs_errors_test {
namespace {

using further_inputs::BatchOf;
using further_inputs::kRate;
using further_inputs::kSamples;
using further_inputs::kSeed;
using further_inputs::kWidth;
using further_inputs::Specs;
using testing::HasSubstr;

MeshStrategyOptions OptionsOf(const LabLayout& layout) {
  MeshStrategyOptions options =
      LabOptions(layout, static_cast<int64_t>(Specs().size()));
  options.seed = kSeed;
  return options;
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
  const auto pipelined = MeshStrategy::Create(
      specs, CrossEntropy, OptionsOf(LabPipeline(2)), nullptr);
  EXPECT_TRUE(pipelined.ok()) << pipelined.status();
  if (pipelined.ok()) note(pipelined->get());
  for (int64_t parts : {1, 3}) {
    ExpectOk(RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
      ReplicatedOptions options;
      options.accumulation_steps = parts;
      TANDEM_ASSIGN_OR_RETURN(const auto strategy,
                              MakeReplicated(MakeLayers(specs, kSeed),
                                             CrossEntropy, options, world));
      note(strategy.get());
      return absl::OkStatus();
    }));
  }
  return said;
}

TEST(FurtherInputsErrorsTest, WhatDoesNotFitIsRefusedByName) {
  Batch batch = BatchOf(0);
  batch.further_inputs.erase("mask");
  for (const std::string& said : SaidOf(Specs(), batch)) {
    EXPECT_THAT(said, HasSubstr("the further input 'mask', which the batch "
                                "lacks; it has 'types', 'views[0]', "
                                "'views[1]'"));
  }
  batch = BatchOf(0);
  batch.further_inputs["weights"] = at::ones({kSamples});
  for (const std::string& said : SaidOf(Specs(), batch)) {
    EXPECT_THAT(said, HasSubstr("'weights', which no layer reads"));
  }
  LayerSpecs specs = Specs();
  specs[3].links.reads = {"views[1]"};
  for (const std::string& said : SaidOf(specs, BatchOf(0))) {
    EXPECT_THAT(said, HasSubstr("'views[0]', which no layer reads"));
  }
  batch = BatchOf(0);
  batch.further_inputs["views"] = c10::ivalue::Tuple::create(
      {at::ones({kSamples, kWidth}), at::ones({kSamples - 1, kWidth})});
  for (const std::string& said : SaidOf(Specs(), batch)) {
    EXPECT_THAT(said, HasSubstr("a batch of 13 samples has Float [12, 6] as "
                                "'views[1]'"));
  }
}

TEST(FurtherInputsErrorsTest, WhatIsTakenMustBeLeftUnlessItIsRead) {
  LayerSpecs specs = Specs();
  specs[4].links.reads = {};
  specs[4].links.pop = {"mask"};
  EXPECT_THAT(MeshStrategy::Create(specs, CrossEntropy,
                                   OptionsOf(LabPipeline(2)), nullptr)
                  .status(),
              Says("'mask' of layer 4 is left by no layer before it"));
  const absl::Status status =
      RunThreadRanks(1, [&](Communicator& world) -> absl::Status {
        return MakeReplicated(MakeLayers(specs, kSeed), CrossEntropy, {}, world)
            .status();
      });
  EXPECT_THAT(status, Says("'mask' of layer 4 is left by no layer before it"));
}

// Rank 0 has the batch; the others are told why there is no step.
TEST(FurtherInputsErrorsTest, EveryRankLearnsWhatDoesNotFit) {
  std::vector<absl::Status> said(2);
  ExpectOk(OnLabRanks(LabPipeline(2, 2), further_inputs::Job(),
                      [&](const LabRank& rank) {
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
}  // namespace tandem::further_inputs_errors_test
