// All-reduce of parameters beside all-reduce of gradients, and DiLoCo, in a
// whole strategy.

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "tests/parallel/strategy/example_job.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::parameter_all_reduce_test {
namespace {

constexpr int kSteps = 8;

LabLayout Replicas(int replicas) {
  LabLayout layout = {"replicas", "sequential", replicas, 1, 1};
  layout.microbatches = replicas;
  return layout;
}

using Change = std::function<void(MeshStrategyOptions&)>;

LabJob JobWith(const OptimizerOptions& optimizer, const Change& change = {}) {
  LabJob job;
  job.specs = [] { return SpecsFromLayers(PlainModel(3)); };
  job.loss = CrossEntropy;
  job.change = [=](MeshStrategyOptions& options) {
    options.optimizer = optimizer;
    if (change) change(options);
  };
  job.batch = [](int step) { return GlobalBatch(step, 12); };
  job.steps = kSteps;
  job.end = [](const LabRank& rank) { return rank.strategy->Synchronise(); };
  return job;
}

Change Averaging(int64_t period) {
  return [=](MeshStrategyOptions& options) {
    options.averaging = ParameterAveragingOptions{period, 0};
  };
}

Change DiLoCo(int64_t period, double rate, double momentum) {
  return [=](MeshStrategyOptions& options) {
    options.averaging = ParameterAveragingOptions{
        period, 0, OuterOptimizerOptions{rate, momentum}};
  };
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// The greatest difference between two models' elements.
double Distance(const LabOutcome& a, const LabOutcome& b) {
  double most = 0;
  for (const auto& [name, tensor] : a.model) {
    most = std::max(most, Distance(tensor, b.model.at(name)));
  }
  return most;
}

// Between averaging parameters after each `period` steps, and gradients in
// each.
double Apart(int replicas, const OptimizerOptions& optimizer,
             double clip_norm = 0, int64_t period = 1) {
  const auto clip = [=](MeshStrategyOptions& options) {
    options.clip_norm = clip_norm;
  };
  const auto gradients =
      TrainInLab(Replicas(replicas), JobWith(optimizer, clip));
  const auto parameters = TrainInLab(
      Replicas(replicas), JobWith(optimizer, [&](MeshStrategyOptions& options) {
        clip(options);
        Averaging(period)(options);
      }));
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_TRUE(parameters.ok()) << parameters.status();
  return Distance(*gradients, *parameters);
}

constexpr double kRounding = 2e-6;
constexpr double kDifferent = 1e-3;

// The mean of w - rate * v_i is w - rate * (the mean of v_i), and momentum and
// weight decay are linear: each replica's momentum is its own, but their mean
// is that of the mean gradient.
TEST(ParameterAllReduceTest, IsThatOfGradientsWhereTheUpdateIsLinear) {
  for (const int replicas : {1, 2, 3, 6}) {
    for (const SgdOptions& sgd :
         {SgdOptions{}, SgdOptions{0.9}, SgdOptions{0.9, 0, 0.01, true}}) {
      EXPECT_LT(Apart(replicas, sgd), kRounding)
          << replicas << " replicas, momentum " << sgd.momentum;
    }
  }
}

TEST(ParameterAllReduceTest, IsAnotherTrainingWhereItIsNot) {
  for (const int replicas : {2, 3}) {
    EXPECT_GT(Apart(replicas, AdamOptions{}), kDifferent);
    EXPECT_GT(Apart(replicas, AdamWOptions{}), kDifferent);
    EXPECT_GT(Apart(replicas, SgdOptions{0.9}, /*clip_norm=*/0.2), kDifferent);
  }
}

// What differs with momentum is the optimizers' state; its mean is that of the
// mean gradient.
TEST(ParameterAllReduceTest, MomentumIsEachReplicasOwn) {
  const std::string name = "fc1.weight.momentum_buffer";
  const auto gradients = TrainInLab(Replicas(2), JobWith(SgdOptions{0.9}));
  const auto parameters =
      TrainInLab(Replicas(2), JobWith(SgdOptions{0.9}, Averaging(1)));
  ASSERT_TRUE(gradients.ok() && parameters.ok());
  const at::Tensor& first = parameters->held[0].at(name);
  const at::Tensor& second = parameters->held[1].at(name);
  EXPECT_GT(Distance(first, second), kDifferent);
  EXPECT_LT(Distance((first + second) / 2, gradients->optimizer.at(name)),
            10 * kRounding);
}

TEST(ParameterAllReduceTest, IsAnotherTrainingWhereItIsRare) {
  for (const SgdOptions& sgd : {SgdOptions{}, SgdOptions{0.9}}) {
    const double apart = Apart(3, sgd, /*clip_norm=*/0, /*period=*/4);
    EXPECT_GT(apart, kDifferent) << "momentum " << sgd.momentum;
  }
}

TEST(DiLoCoTest, RateOneWithoutMomentumIsPlainAveraging) {
  for (const int replicas : {1, 2, 3}) {
    const auto plain =
        TrainInLab(Replicas(replicas), JobWith(SgdOptions{}, Averaging(1)));
    const auto outer =
        TrainInLab(Replicas(replicas), JobWith(SgdOptions{}, DiLoCo(1, 1, 0)));
    ASSERT_TRUE(plain.ok() && outer.ok());
    EXPECT_LT(Distance(*plain, *outer), kRounding);
  }
}

TEST(DiLoCoTest, ReplicasHaveTheSameBitsAfterEachRound) {
  for (const int replicas : {2, 3, 4}) {
    LabJob job = JobWith(AdamWOptions{}, DiLoCo(4, 0.7, 0.9));
    job.end = nullptr;  // kSteps are two rounds
    const auto outcome = TrainInLab(Replicas(replicas), job);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    for (const TensorsByName& held : outcome->held) {
      for (const auto& [name, tensor] : outcome->model) {
        EXPECT_TRUE(held.at(name).equal(tensor)) << name;
      }
    }
    EXPECT_EQ(outcome->optimizer.count("fc1.weight.outer_value"), 1u);
    EXPECT_EQ(outcome->optimizer.count("fc1.weight.outer_momentum_buffer"), 1u);
  }
}

// Each stage steps by itself; on devices of one rank, and on ranks.
TEST(DiLoCoTest, StagesOfAPipelineComeToTheSame) {
  const LabJob job = JobWith(SgdOptions{0.9}, DiLoCo(4, 0.7, 0.9));
  const auto expected = TrainInLab(Replicas(2), job);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int pipe : {1, 2}) {
    LabLayout hybrid = {"hybrid", "1f1b", 2, pipe, 2 / pipe};
    hybrid.microbatches = 2;
    const auto found = TrainInLab(hybrid, job);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LT(Distance(*found, *expected), kRounding) << pipe;
    EXPECT_EQ(found->optimizer.size(), expected->optimizer.size()) << pipe;
  }
}

// In the midst of a round, too: what is looked at is a copy.
TEST(DiLoCoTest, EvaluatingAndSavingChangeNoReplica) {
  for (const Change& change : {Averaging(3), DiLoCo(4, 0.7, 0.9)}) {
    const auto trained = [&](bool looks) {
      LabJob job = JobWith(AdamWOptions{}, change);
      job.specs = [] {
        LayerList layers = PlainModel(3);
        layers.insert(layers.begin() + 1, BatchNormLayer("bn", kHidden));
        return SpecsFromLayers(layers);
      };
      job.step = [=](const LabRank& rank, const Batch& batch,
                     int step) -> absl::StatusOr<Score> {
        TANDEM_ASSIGN_OR_RETURN(const Score score,
                                rank.strategy->TrainStep(batch, 0.1));
        if (!looks || step + 1 == kSteps) return score;
        TANDEM_RETURN_IF_ERROR(rank.strategy->Synchronise());
        TANDEM_RETURN_IF_ERROR(rank.strategy->Evaluate(batch).status());
        TANDEM_RETURN_IF_ERROR(rank.strategy->GatherState().status());
        return score;
      };
      job.end = nullptr;
      return TrainInLab(Replicas(2), job);
    };
    const auto expected = trained(false);
    const auto found = trained(true);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(found.ok()) << found.status();
    for (size_t rank = 0; rank < 2; ++rank) {
      ExpectSameBits(found->held[rank], expected->held[rank]);
    }
  }
}

// Saved in the midst of a round: global values and momentum are in the state.
// All replicas go on from their mean, as they do who load what they have saved.
TEST(DiLoCoTest, GoesOnFromACheckpointWithTheSameBits) {
  const int replicas = 2, saved_after = 5;
  WholeState saved;
  LabJob whole = JobWith(SgdOptions{}, DiLoCo(4, 0.7, 0.9));
  whole.step = [&](const LabRank& rank, const Batch& batch,
                   int step) -> absl::StatusOr<Score> {
    if (step == saved_after) {
      TANDEM_RETURN_IF_ERROR(rank.strategy->Synchronise());
      TANDEM_ASSIGN_OR_RETURN(const WholeState state,
                              rank.strategy->GatherState());
      if (rank.rank == 0) {
        saved.parameters = DetachedCopies(state.parameters);
        saved.optimizer = DetachedCopies(state.optimizer);
      }
      TANDEM_RETURN_IF_ERROR(rank.world->Barrier());
      TANDEM_RETURN_IF_ERROR(rank.strategy->LoadModelState(saved.parameters));
    }
    return rank.strategy->TrainStep(batch, 0.1);
  };
  const auto expected = TrainInLab(Replicas(replicas), whole);
  ASSERT_TRUE(expected.ok()) << expected.status();
  LabJob resumed = JobWith(SgdOptions{}, DiLoCo(4, 0.7, 0.9));
  resumed.begin = [&](const LabRank& rank) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(rank.strategy->LoadModelState(saved.parameters));
    TANDEM_RETURN_IF_ERROR(rank.strategy->LoadOptimizerState(saved.optimizer));
    rank.strategy->ResumeAt(saved_after);
    return absl::OkStatus();
  };
  resumed.step = [&](const LabRank& rank, const Batch& batch,
                     int step) -> absl::StatusOr<Score> {
    if (step < saved_after) return Score();
    return rank.strategy->TrainStep(batch, 0.1);
  };
  const auto found = TrainInLab(Replicas(replicas), resumed);
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectSameBits(found->model, expected->model);
  ExpectSameBits(found->optimizer, expected->optimizer);
  // Whoever has no outer optimizer refuses its state.
  LabJob plain = JobWith(SgdOptions{}, Averaging(4));
  plain.steps = 0;
  plain.begin = [&](const LabRank& rank) {
    EXPECT_THAT(rank.strategy->CheckOptimizerState(saved.optimizer),
                Says(".outer_"));
    return absl::OkStatus();
  };
  const auto refused = TrainInLab(Replicas(replicas), plain);
  EXPECT_TRUE(refused.ok()) << refused.status();
}

}  // namespace
}  // namespace tandem::parameter_all_reduce_test
