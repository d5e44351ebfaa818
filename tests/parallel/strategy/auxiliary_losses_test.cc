// A model with several losses: one of an inner layer, and a loss function of
// two terms, wherever the model is cut.

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::auxiliary_losses_test {
namespace {

constexpr int64_t kWidth = 9;
constexpr int kSteps = 3;
constexpr uint64_t kSeed = 2;
constexpr double kRate = 0.1;

// Adds the mean square of what passes.
LayerSpec Penalty(const std::string& layer, const std::string& loss) {
  LayerSpec spec;
  spec.name = layer;
  spec.type = "Penalty";
  spec.make = [layer, loss](uint64_t /*seed*/) {
    Layer made;
    made.name = layer;
    made.forward = [loss](const at::Tensor& x) {
      AddAuxiliaryLoss(loss, x.square().mean().mul(0.5));
      return x;
    };
    return made;
  };
  return spec;
}

// Two layers' losses have one name.
LayerSpecs Specs() {
  return {LinearLayer("fc1", kWidth, kWidth),
          Penalty("penalty1", "square"),
          ReluLayer("relu1"),
          LinearLayer("fc2", kWidth, kWidth),
          Penalty("penalty2", "square"),
          LinearLayer("head", kWidth, 5)};
}

LossFunction Loss() { return WithZLoss(CrossEntropy, 0.1); }

Batch BatchOf(int step) {
  return RandomBatch({{kWidth}, 5}, /*size=*/24, kSeed, step);
}

// With what layers and the loss added, by step.
struct Outcome {
  LabOutcome trained;
  std::vector<std::map<std::string, double>> added;
};

// The whole model on the whole batch, by hand.
Outcome ByHand() {
  const LayerList layers = MakeLayers(Specs(), kSeed);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = BatchOf(step);
    LossTerms terms;
    LossResult result;
    {
      const LossTerms::Scope scope(&terms);
      result = Loss()(Forward(layers, batch.inputs), batch.targets);
    }
    at::Tensor all = result.loss;
    outcome.added.emplace_back();
    for (const auto& each : terms.terms()) {
      all = all.add(each.loss);
      outcome.added.back()[each.name] += each.loss.item<double>();
    }
    all.backward();
    outcome.trained.scores.push_back(result.score);
    Descend(layers, kRate);
  }
  outcome.trained.model = CopiesOf(NamedParameters(layers));
  return outcome;
}

// Nothing is added in evaluation, and all ranks know what is in training.
absl::StatusOr<Score> Step(const LabRank& rank, const Batch& batch, int step) {
  Strategy& strategy = *rank.strategy;
  EXPECT_EQ(strategy.AuxiliaryLosses().empty(), step == 0);
  TANDEM_ASSIGN_OR_RETURN(const Score score, strategy.TrainStep(batch, kRate));
  const auto added = strategy.AuxiliaryLosses();
  TANDEM_RETURN_IF_ERROR(strategy.Evaluate(BatchOf(step)).status());
  EXPECT_EQ(strategy.AuxiliaryLosses(), added);
  std::string text;
  for (const auto& [name, mean] : added) {
    absl::StrAppend(&text, name, " ", mean, "\n");
  }
  if (rank.world != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            rank.world->AllGatherString(text));
    EXPECT_THAT(all, testing::Each(text));
  }
  return score;
}

LabJob Job(bool reproducible = false) {
  LabJob job;
  job.specs = Specs;
  job.loss = Loss();
  job.change = [reproducible](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.reproducible = reproducible;
  };
  job.batch = BatchOf;
  job.steps = kSteps;
  return job;
}

Outcome Trained(const LabLayout& layout, LabJob job = Job()) {
  Outcome outcome;
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    TANDEM_ASSIGN_OR_RETURN(const Score score, Step(rank, batch, step));
    if (rank.rank == 0) {
      outcome.added.push_back(rank.strategy->AuxiliaryLosses());
    }
    return score;
  };
  auto trained = TrainInLab(layout, job);
  EXPECT_TRUE(trained.ok()) << trained.status();
  if (trained.ok()) outcome.trained = *std::move(trained);
  return outcome;
}

void ExpectAllClose(const Outcome& found, const Outcome& expected) {
  ExpectClose(found.trained, expected.trained);
  ASSERT_EQ(found.added.size(), expected.added.size());
  for (size_t i = 0; i < expected.added.size(); ++i) {
    ASSERT_EQ(found.added[i].size(), 2u);
    for (const auto& [name, mean] : expected.added[i]) {
      ASSERT_EQ(found.added[i].count(name), 1u) << name;
      EXPECT_NEAR(found.added[i].at(name), mean, 1e-5 * mean) << name;
    }
  }
}

std::vector<LabLayout> Layouts() {
  return LabLayouts(
      "1f1b 2x1x1, gpipe 3x1x1, 1f1b 1x1x2, gpipe 1x3x1, 1f1b 1x1x3 always, "
      "zb_h1 2x1x2, zb_h1 2x2x1 except_last");
}

TEST(AuxiliaryLossesTest, AreTrainedAndReportedInAnyLayout) {
  const Outcome expected = ByHand();
  EXPECT_GT(expected.added[0].at("square"), 0.01);
  EXPECT_GT(expected.added[0].at("z_loss"), 0.01);
  ExpectAllClose(Trained({"one"}), expected);
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    ExpectAllClose(Trained(layout), expected);
    if (layout.replicas == 1) {
      LabLayout together = layout;
      together.weight_gradient_batch = 3;
      ExpectAllClose(Trained(together), expected);
    }
  }
}

TEST(AuxiliaryLossesTest, AreReproducible) {
  const Outcome expected = Trained({"one"}, Job(/*reproducible=*/true));
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    const Outcome found = Trained(layout, Job(/*reproducible=*/true));
    ExpectSameBits(found.trained, expected.trained);
    EXPECT_EQ(found.added, expected.added);
  }
}

TEST(AuxiliaryLossesTest, ReplicasInOnePieceTrainOnThemToo) {
  const Outcome expected = ByHand();
  for (const int ranks : {1, 2, 3}) {
    for (const int accumulation : {1, 4}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, accumulating ", accumulation));
      ReplicatedOptions options;
      options.seed = kSeed;
      options.accumulation_steps = accumulation;
      LabLayout layout = {"replicas", "sequential", ranks};
      layout.group_of_one = true;
      LabJob job = Job();
      job.make = [&](Communicator* world) {
        return MakeReplicated(MakeLayers(Specs(), kSeed), Loss(), options,
                              *world);
      };
      ExpectAllClose(Trained(layout, job), expected);
    }
  }
}

TEST(AuxiliaryLossesErrorTest, ALossThatIsNoScalarNamesItsLayer) {
  LayerSpecs specs = Specs();
  specs[1].make = [](uint64_t /*seed*/) {
    Layer layer;
    layer.name = "penalty1";
    layer.forward = [](const at::Tensor& x) {
      AddAuxiliaryLoss("square", x.square());
      return x;
    };
    return layer;
  };
  LabJob job = Job();
  job.specs = [&] { return specs; };
  const absl::Status status =
      TrainInLab({"a pair", "1f1b", 1, 1, 2}, job).status();
  EXPECT_THAT(status, Says("layer penalty1: loss square must be a scalar"));
}

}  // namespace
}  // namespace tandem::auxiliary_losses_test
