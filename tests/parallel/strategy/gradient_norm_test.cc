// The norm of a step's gradients, as whoever watches a job asks for it: that of
// the whole model, in every layout, and at no one's expense.

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "parallel/step/step_score.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::gradient_norm_test {
namespace {

constexpr int kSteps = 2;
constexpr int64_t kSamples = 24;

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

// Of steps that ask for it where `asks` says so; null: of all.
Measured Train(const LabLayout& layout, const std::string& model,
               const LabChange& change = nullptr,
               const std::function<bool(int step)>& asks = nullptr) {
  std::vector<Norms> norms(static_cast<size_t>(layout.ranks()), Norms(kSteps));
  LabJob job = ModelJob(model, kSamples, kSteps, change);
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

// Of gradients as they lie between the two halves of a step, changed so.
Norms OfHalves(const std::string& model, double clamp = 1e9,
               const std::string& without = "") {
  Norms norms;
  LabJob job = ModelJob(model, kSamples, kSteps);
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
    ExpectNear(Train(Single(), model).norms, OfHalves(model), 1e-12);
  }
}

TEST(GradientNormTest, IsTheSameInEveryLayoutButForTheOrderOfSums) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    const Norms expected = OfHalves(model);
    for (const LabLayout& layout : Layouts()) {
      SCOPED_TRACE(layout.name);
      ExpectNear(Train(layout, model).norms, expected, 1e-5);
    }
  }
}

TEST(GradientNormTest, ReproducibleLayoutsHaveTheSameBits) {
  const auto reproducible = [](MeshStrategyOptions& options) {
    options.reproducible = true;
  };
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    const Norms expected = Train(Single(), model, reproducible).norms;
    ASSERT_TRUE(expected[0].has_value());
    for (const LabLayout& layout : Layouts()) {
      EXPECT_EQ(Train(layout, model, reproducible).norms, expected)
          << layout.name;
    }
    EXPECT_EQ(Train(Layouts()[0], model,
                    [&](auto& options) {
                      reproducible(options);
                      options.shard_optimizer = OptimizerSharding::kOn;
                    })
                  .norms,
              expected);
  }
}

// Where each rank would have the means of its own share alone.
TEST(GradientNormTest, ReplicasThatShareTheOptimizerHaveIt) {
  const auto shards = [](MeshStrategyOptions& options) {
    options.optimizer = AdamOptions();
    options.shard_optimizer = OptimizerSharding::kOn;
  };
  const auto whole = [](MeshStrategyOptions& options) {
    options.optimizer = AdamOptions();
  };
  for (const LabLayout& layout : {Layouts()[0], Layouts()[6]}) {
    EXPECT_EQ(Train(layout, "gpt_tiny", shards).norms,
              Train(layout, "gpt_tiny", whole).norms);
  }
}

TEST(GradientNormTest, IsThatBeforeClippingByNorm) {
  for (const double type : {2.0, 1.0}) {
    const auto of = [&](double clip_norm) {
      return Train(Single(), "gpt_tiny",
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
    ExpectNear(Train(Single(), "mlp_small",
                     [=](auto& options) {
                       options.clip_value = 1.0 / 1024;
                       options.clip_norm = clip_norm;
                     })
                   .norms,
               OfHalves("mlp_small", 1.0 / 1024), 1e-12, /*steps=*/1);
  }
}

TEST(GradientNormTest, ParametersThatAreAReplicasOwnHaveNoPart) {
  const Norms norms = Train(Layouts()[0], "mlp_small", [](auto& options) {
                        options.ddp.parameters_to_ignore = {"fc1.weight"};
                      }).norms;
  ExpectNear(norms, OfHalves("mlp_small", 1e9, "fc1.weight"), 1e-5,
             /*steps=*/1);
}

TEST(GradientNormTest, IsThereWhereItIsAskedForAndChangesNoBit) {
  const auto second = [](int step) { return step == 1; };
  const auto never = [](int) { return false; };
  for (const auto sharding :
       {OptimizerSharding::kOff, OptimizerSharding::kOn}) {
    for (const LabLayout& layout : {Layouts()[0], Layouts()[6]}) {
      SCOPED_TRACE(layout.name);
      const auto change = [=](MeshStrategyOptions& options) {
        options.optimizer = AdamOptions();
        options.shard_optimizer = sharding;
      };
      const Measured once = Train(layout, "gpt_tiny", change, second);
      EXPECT_THAT(once.norms,
                  testing::ElementsAre(std::nullopt, testing::Gt(0.0)));
      const Measured none = Train(layout, "gpt_tiny", change, never);
      EXPECT_EQ(none.norms, Norms(kSteps));
      ExpectSameBits(once.outcome, none.outcome);
    }
  }
}

}  // namespace
}  // namespace tandem::gradient_norm_test
