// Sums that a layer and a loss function report by name, wherever the model is
// cut.

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
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
#include "parallel/step/step_score.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::named_sums_and_norms_test {
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

// The sums of two evaluations of a batch on each replica. What is inferred for
// its outputs alone has no part.
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
  std::vector<LabLayout> layouts = LabLayouts(
      "1f1b 1x1x1, 1f1b 2x1x1, gpipe 1x3x1, zb_h1 1x3x1, 1f1b 1x1x2, "
      "1f1b 2x2x1",
      /*microbatches=*/6);
  layouts.push_back(LabLayoutNamed("1f1b 1x1x1", 1));
  for (LabLayout layout : layouts) {
    for (const auto checkpointing :
         {ActivationCheckpointing::kNever, ActivationCheckpointing::kAlways}) {
      layout.checkpointing = checkpointing;
      SCOPED_TRACE(
          absl::StrCat(layout.name, " ", static_cast<int>(checkpointing)));
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
  EXPECT_THAT(TrainInLab(LabLayoutNamed("1f1b 1x1x1", 1), job).status(),
              Says("the loss requires no gradient"));
}

// The norm of a step's gradients, as whoever watches a job asks for it: that of
// the whole model, in every layout, and at no one's expense.

constexpr int64_t kNormSamples = 24;

using Norms = std::vector<std::optional<double>>;  // by step

LabLayout Single() { return {"single", "1f1b", 1, 1, 1}; }

std::vector<LabLayout> Layouts() {
  return LabLayouts(
      "1f1b 2x1x1, 1f1b 3x1x1, 1f1b 1x1x2, sequential 1x1x2, zb_v 1x1x2x2, "
      "gpipe 1x2x1, zb_h1 2x2x1, 1f1b 2x1x2");
}

struct Measured {
  Norms norms;  // as every rank has them
  LabOutcome outcome;
};

// The norms of steps that ask for it where `asks` says so; null: of all.
Measured Measure(const LabLayout& layout, const std::string& model,
                 const LabChange& change = nullptr,
                 const std::function<bool(int step)>& asks = nullptr) {
  std::vector<Norms> norms(static_cast<size_t>(layout.ranks()), Norms(kSteps));
  LabJob job = ModelJob(model, kNormSamples, kSteps, change);
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    if (!asks || asks(step)) rank.strategy->MeasureGradientNorm();
    TANDEM_RETURN_IF_ERROR(rank.strategy->SubmitStep(batch, kLabRate));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<StepScore> scores,
                            rank.strategy->TakeScores());
    norms[static_cast<size_t>(rank.rank)][static_cast<size_t>(step)] =
        scores.back().gradient_norm;
    return scores.back().score;
  };
  const absl::StatusOr<LabOutcome> outcome = TrainInLab(layout, job);
  EXPECT_TRUE(outcome.ok()) << layout.name << ": " << outcome.status();
  for (const Norms& each : norms) EXPECT_EQ(each, norms[0]) << layout.name;
  return {norms[0], outcome.ok() ? *outcome : LabOutcome()};
}

// The norms of gradients as they lie between the two halves of a step, changed
// so.
Norms OfHalves(const std::string& model, double clamp = 1e9,
               const std::string& without = "") {
  Norms norms;
  LabJob job = ModelJob(model, kNormSamples, kSteps);
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int) -> absl::StatusOr<Score> {
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->ComputeGradients(batch));
    double sum = 0;
    std::set<const void*> seen;  // a tied weight has two names
    for (const auto& [name, gradient] : rank.strategy->Gradients()) {
      if (name == without || !seen.insert(gradient.const_data_ptr()).second) {
        continue;
      }
      sum += gradient.to(at::kDouble)
                 .clamp(-clamp, clamp)
                 .square()
                 .sum()
                 .item<double>();
    }
    norms.push_back(std::sqrt(sum));
    TANDEM_RETURN_IF_ERROR(rank.strategy->Update(kLabRate));
    return score;
  };
  const auto outcome = TrainInLab(Single(), job);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return norms;
}

void ExpectNear(const Norms& found, const Norms& expected, double relative,
                size_t steps = kSteps) {
  ASSERT_GE(found.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    ASSERT_TRUE(found[i].has_value()) << i;
    EXPECT_NEAR(*found[i], *expected[i], relative * *expected[i]) << i;
  }
}

TEST(GradientNormTest, IsThatOfAllGradients) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    ExpectNear(Measure(Single(), model).norms, OfHalves(model), 1e-12);
  }
}

TEST(GradientNormTest, IsTheSameInEveryLayoutButForTheOrderOfSums) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    const Norms expected = OfHalves(model);
    for (const LabLayout& layout : Layouts()) {
      SCOPED_TRACE(layout.name);
      ExpectNear(Measure(layout, model).norms, expected, 1e-5);
    }
  }
}

TEST(GradientNormTest, ReproducibleLayoutsHaveTheSameBits) {
  const auto reproducible = [](MeshStrategyOptions& options) {
    options.reproducible = true;
  };
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    const Norms expected = Measure(Single(), model, reproducible).norms;
    ASSERT_TRUE(expected[0].has_value());
    for (const LabLayout& layout : Layouts()) {
      EXPECT_EQ(Measure(layout, model, reproducible).norms, expected)
          << layout.name;
    }
    EXPECT_EQ(Measure(Layouts()[0], model,
                      [&](auto& options) {
                        reproducible(options);
                        options.shard = Sharding::kOptimizer;
                      })
                  .norms,
              expected);
  }
}

// Where each rank would have the means of its own share alone.
TEST(GradientNormTest, ReplicasThatShareTheOptimizerHaveIt) {
  const auto shards = [](MeshStrategyOptions& options) {
    options.optimizer = AdamOptions();
    options.shard = Sharding::kOptimizer;
  };
  const auto whole = [](MeshStrategyOptions& options) {
    options.optimizer = AdamOptions();
  };
  for (const LabLayout& layout : {Layouts()[0], Layouts()[6]}) {
    EXPECT_EQ(Measure(layout, "gpt_tiny", shards).norms,
              Measure(layout, "gpt_tiny", whole).norms);
  }
}

TEST(GradientNormTest, IsThatBeforeClippingByNorm) {
  for (const double type : {2.0, 1.0}) {
    const auto of = [&](double clip_norm) {
      return Measure(Single(), "gpt_tiny",
                     [=](auto& options) {
                       options.optimizer = AdamOptions();
                       options.clip_norm = clip_norm;
                       options.clip_norm_type = type;
                     })
          .norms;
    };
    // Later steps begin from other values.
    ExpectNear(of(1e-3), of(0), 1e-12, /*steps=*/1);
  }
}

TEST(GradientNormTest, IsThatAfterClippingByValue) {
  for (const double clip_norm : {0.0, 1.0}) {
    ExpectNear(Measure(Single(), "mlp_small",
                       [=](auto& options) {
                         options.clip_value = 1.0 / 1024;
                         options.clip_norm = clip_norm;
                       })
                   .norms,
               OfHalves("mlp_small", 1.0 / 1024), 1e-12, /*steps=*/1);
  }
}

TEST(GradientNormTest, ParametersThatAreAReplicasOwnHaveNoPart) {
  const Norms norms = Measure(Layouts()[0], "mlp_small", [](auto& options) {
                        options.ddp.parameters_to_ignore = {"fc1.weight"};
                      }).norms;
  ExpectNear(norms, OfHalves("mlp_small", 1e9, "fc1.weight"), 1e-5,
             /*steps=*/1);
}

TEST(GradientNormTest, IsThereWhereItIsAskedForAndChangesNoBit) {
  const auto second = [](int step) { return step == 1; };
  const auto never = [](int) { return false; };
  for (const auto sharding : {Sharding::kOff, Sharding::kOptimizer}) {
    for (const LabLayout& layout : {Layouts()[0], Layouts()[6]}) {
      SCOPED_TRACE(layout.name);
      const auto change = [=](MeshStrategyOptions& options) {
        options.optimizer = AdamOptions();
        options.shard = sharding;
      };
      const Measured once = Measure(layout, "gpt_tiny", change, second);
      EXPECT_THAT(once.norms,
                  testing::ElementsAre(std::nullopt, testing::Gt(0.0)));
      const Measured none = Measure(layout, "gpt_tiny", change, never);
      EXPECT_EQ(none.norms, Norms(kSteps));
      ExpectSameBits(once.outcome, none.outcome);
    }
  }
}

}  // namespace
}  // namespace tandem::named_sums_and_norms_test
