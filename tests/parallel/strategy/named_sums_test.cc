// Sums that a layer and a loss function report by name, wherever the model is
// cut.

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::named_sums_test {
namespace {

constexpr int64_t kWidth = 7;
constexpr int64_t kClasses = 5;
constexpr int64_t kBatch = 22;  // microbatches differ in size
constexpr uint64_t kSeed = 4;
constexpr int kSteps = 2;

using Sums = std::map<std::string, double>;

// Counts what is greater than 0, an int64.
LayerSpec Counting(const std::string& layer) {
  LayerSpec spec;
  spec.name = layer;
  spec.type = "Counting";
  spec.make = [layer](uint64_t /*seed*/) {
    Layer made;
    made.name = layer;
    made.forward = [](const at::Tensor& x) {
      AddSum("positive", x.gt(0).sum());
      return x;
    };
    return made;
  };
  return spec;
}

// Two layers' sums have one name.
LayerSpecs Specs() {
  return {LinearLayer("fc1", kWidth, kWidth),
          Counting("count1"),
          LinearLayer("fc2", kWidth, kWidth),
          ReluLayer("relu"),
          Counting("count2"),
          LinearLayer("head", kWidth, kClasses)};
}

LossResult Loss(const at::Tensor& outputs, const at::Tensor& targets) {
  AddSum("zeros", targets.eq(0).sum());
  AddSum("largest", outputs.amax(1).sum());
  return CrossEntropy(outputs, targets);
}

Batch BatchOf(int step) {
  const at::Generator draws = GeneratorFor(kSeed, absl::StrCat(step));
  return {at::randn({kBatch, kWidth}, draws),
          at::randint(kClasses, {kBatch}, draws, at::kLong), kBatch};
}

Sums ByHand(int step) {
  const at::NoGradGuard no_grad;
  const Batch batch = BatchOf(step);
  LossTerms terms;
  const LossTerms::Scope scope(&terms);
  Loss(Forward(MakeLayers(Specs(), kSeed), batch.inputs), batch.targets);
  Sums sums;
  for (const auto& each : terms.terms()) {
    EXPECT_TRUE(each.is_sum);
    sums[each.name] += each.loss.to(at::kDouble).item<double>();
  }
  return sums;
}

// Of two evaluations of a batch on each replica. What is inferred for its
// outputs alone has no part.
absl::Status ExpectEvaluationSums(const LabRank& rank, int replicas, int step) {
  auto& strategy = dynamic_cast<MeshStrategy&>(*rank.strategy);
  for (int i = 0; i < 2; ++i) {
    TANDEM_RETURN_IF_ERROR(strategy.Evaluate(BatchOf(step)).status());
    TANDEM_RETURN_IF_ERROR(strategy.Forward(BatchOf(step)).status());
  }
  TANDEM_ASSIGN_OR_RETURN(const Sums found, strategy.TakeEvaluationSums());
  Sums expected = ByHand(step);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, sum] : expected) {
    SCOPED_TRACE(name);
    const double all = 2 * replicas * sum;
    EXPECT_NEAR(found.at(name), all, name == "largest" ? 1e-3 : 0);
  }
  TANDEM_ASSIGN_OR_RETURN(const Sums none, strategy.TakeEvaluationSums());
  EXPECT_TRUE(none.empty());
  return absl::OkStatus();
}

// Parameters stay what they are: the rate is 0.
absl::StatusOr<Score> Step(int replicas, const LabRank& rank,
                           const Batch& batch, int step) {
  Strategy& strategy = *rank.strategy;
  TANDEM_ASSIGN_OR_RETURN(const Score score, strategy.TrainStep(batch, 0));
  const Sums expected = ByHand(step);
  const Sums found = strategy.NamedSums();
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, sum] : expected) {
    SCOPED_TRACE(name);
    if (name == "largest") {
      EXPECT_NEAR(found.at(name), sum, 1e-4);
    } else {
      EXPECT_EQ(found.at(name), sum);
    }
  }
  EXPECT_TRUE(strategy.AuxiliaryLosses().empty());
  TANDEM_RETURN_IF_ERROR(ExpectEvaluationSums(rank, replicas, step + 1));
  EXPECT_EQ(strategy.NamedSums(), found);
  return score;
}

LabJob Job(int replicas) {
  LabJob job;
  job.specs = Specs;
  job.loss = LossFunction(Loss);
  job.change = [](MeshStrategyOptions& options) { options.seed = kSeed; };
  job.batch = BatchOf;
  job.steps = kSteps;
  job.step = [replicas](const LabRank& rank, const Batch& batch, int step) {
    return Step(replicas, rank, batch, step);
  };
  return job;
}

TEST(NamedSumsTest, EveryRankOfEveryLayoutKnowsThem) {
  const std::vector<LabLayout> layouts = {
      {"single", "1f1b", 1, 1},    {"microbatches", "1f1b", 1, 1},
      {"ddp", "1f1b", 2, 1},       {"pipeline", "gpipe", 1, 3},
      {"pipeline", "zb_h1", 1, 3}, {"two devices", "1f1b", 1, 1, 2},
      {"hybrid", "1f1b", 2, 2},
  };
  for (LabLayout layout : layouts) {
    layout.microbatches = layout.name == "single" ? 1 : 6;
    for (const auto checkpointing :
         {ActivationCheckpointing::kNever, ActivationCheckpointing::kAlways}) {
      layout.checkpointing = checkpointing;
      SCOPED_TRACE(absl::StrCat(layout.name, " ", layout.schedule, " ",
                                static_cast<int>(checkpointing)));
      const auto outcome = TrainInLab(layout, Job(layout.replicas));
      EXPECT_TRUE(outcome.ok()) << outcome.status();
    }
  }
}

// A sum is no loss that the outputs would be trained by.
TEST(NamedSumsTest, ADetachedLossIsStillRefused) {
  LabJob job = Job(/*replicas=*/1);
  job.step = nullptr;
  job.loss =
      LossFunction([](const at::Tensor& outputs, const at::Tensor& targets) {
        LossResult result = Loss(outputs, targets);
        result.loss = result.loss.detach();
        return result;
      });
  LabLayout layout = {"single"};
  layout.microbatches = 1;
  EXPECT_THAT(TrainInLab(layout, job).status(),
              Says("the loss requires no gradient"));
}

}  // namespace
}  // namespace tandem::named_sums_test
