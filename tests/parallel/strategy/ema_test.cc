// Exponential moving averages of weights, beside the arithmetic of
// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_lerp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/testing/statuses.h"
#include "parallel/step/parts/step_parts.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::ema_test {
namespace {

constexpr double kDecay = 0.75;
constexpr int64_t kSamples = 24;
constexpr int kTest = 9;  // number of the batch that is evaluated

LabJob AveragingJob(const std::string& model, int steps,
                    const LabChange& change = nullptr) {
  LabJob job = ModelJob(model, kSamples, steps, [change](auto& options) {
    options.ema_decay = kDecay;
    options.optimizer = SgdOptions{0.9};
    if (change) change(options);
  });
  job.test = kTest;
  return job;
}

bool IsAverage(const std::string& state) {
  return absl::EndsWith(state, ".ema");
}

// By the parameter's name.
TensorsByName AveragesIn(const NamedTensors& state) {
  TensorsByName averages;
  for (const auto& [name, tensor] : state) {
    if (!IsAverage(name)) continue;
    averages[name.substr(0, name.rfind('.'))] = tensor.detach().cpu().clone();
  }
  return averages;
}

NamedTensors WithoutAverages(const NamedTensors& state) {
  NamedTensors others;
  for (const auto& each : state) {
    if (!IsAverage(each.first)) others.push_back(each);
  }
  return others;
}

// What AveragedModel makes of a rank's parameters, operation by operation, and
// by the operator that PyTorch calls.
class Oracle {
 public:
  void Update(const NamedTensors& parameters) {
    const TensorsByName now = CopiesOf(parameters);
    if (!std::exchange(begun_, true)) {
      averages_ = now;
      lerped_ = CopiesOf(parameters);
      return;
    }
    for (const auto& [name, parameter] : now) {
      at::Tensor& average = averages_.at(name);
      average = average + (parameter - average) * (1 - kDecay);
      at::_foreach_lerp_({lerped_.at(name)}, {parameter}, 1 - kDecay);
    }
  }

  void Expect(const TensorsByName& found) const {
    ExpectSameBits(found, averages_);
    for (const auto& [name, tensor] : lerped_) {
      EXPECT_TRUE(found.at(name).allclose(tensor, 1e-6, 1e-7)) << name;
    }
  }

 private:
  TensorsByName averages_, lerped_;
  bool begun_ = false;
};

// Expects the oracle's averages on each rank after each step.
void ExpectAverages(const LabLayout& layout, LabJob job) {
  std::vector<Oracle> oracles(static_cast<size_t>(layout.ranks()));
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int) -> absl::StatusOr<Score> {
    Strategy& strategy = *rank.strategy;
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            strategy.TrainStep(batch, kLabRate));
    Oracle& oracle = oracles[static_cast<size_t>(rank.rank)];
    oracle.Update(strategy.Parameters());
    oracle.Expect(AveragesIn(strategy.OptimizerState()));
    return score;
  };
  const auto outcome = TrainInLab(layout, job);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
}

TEST(EmaTest, AreThoseOfAveragedModelInEveryLayout) {
  const std::vector<std::pair<std::string, LabChange>> changes = {
      {"plain", nullptr},
      {"shared", [](auto& o) { o.shard = Sharding::kOptimizer; }},
      {"bf16",
       [](auto& o) { o.ddp.mixed_precision.param_dtype = at::kBFloat16; }},
      {"last", [](auto& o) { o.updates_last = true; }}};
  for (const LabLayout& layout :
       LabLayouts("sequential 1x1x1, sequential 2x1x1, sequential 1x1x2, "
                  "1f1b 1x1x2, 1f1b 1x2x1, 1f1b 2x2x1, zb_v 1x1x2x2")) {
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(absl::StrCat(layout.name, ", ", name));
      ExpectAverages(layout, AveragingJob("mlp_small", 4, change));
    }
    SCOPED_TRACE(absl::StrCat(layout.name, ", tied"));
    ExpectAverages(layout, AveragingJob("gpt_tiny_tied", 2));
  }
}

TEST(EmaTest, GoOnInAnyLayoutWithTheSameBits) {
  const auto reproducible = [](auto& options) { options.reproducible = true; };
  const std::vector<std::pair<LabLayout, Sharding>> meshes = [] {
    std::vector<std::pair<LabLayout, Sharding>> all;
    for (const LabLayout& each :
         LabLayouts("1f1b 1x1x1, 1f1b 2x1x1, 1f1b 1x2x1, zb_h1 2x2x1")) {
      all.emplace_back(each, Sharding::kOff);
      if (each.replicas > 1) all.emplace_back(each, Sharding::kOptimizer);
    }
    return all;
  }();
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    const auto straight =
        TrainInLab(meshes[0].first, AveragingJob(model, 4, reproducible));
    for (const auto& [from, from_sharding] : meshes) {
      const auto saved = TrainInLab(
          from, AveragingJob(model, 2, [&, s = from_sharding](auto& options) {
            options.reproducible = true;
            options.shard = s;
          }));
      ASSERT_TRUE(saved.ok()) << saved.status();
      for (const auto& [to, to_sharding] : meshes) {
        SCOPED_TRACE(absl::StrCat(model, " from ", from.name, " to ", to.name));
        LabJob job = AveragingJob(model, 2, [s = to_sharding](auto& options) {
          options.reproducible = true;
          options.shard = s;
        });
        job.batch = [model](int step) {
          const int number = step == kTest ? kTest : step + 2;
          return LabBatch(model, kSamples, kLabSeed, number);
        };
        job.begin = [&](const LabRank& rank) {
          return Resume(*rank.strategy, *saved, 2);
        };
        const auto found = TrainInLab(to, job);
        ASSERT_TRUE(found.ok()) << found.status();
        ASSERT_TRUE(straight.ok()) << straight.status();
        ExpectSameBits(found->model, straight->model);
        ExpectSameBits(found->optimizer, straight->optimizer);
        EXPECT_EQ(found->evaluation.loss_sum, straight->evaluation.loss_sum);
      }
    }
  }
}

// Evaluation is that of a model that has the averages, and changes nothing.
TEST(EmaTest, EvaluationIsOfTheAverages) {
  for (const std::string model : {"mlp_small", "gpt_tiny_tied"}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      // It takes seconds on a processor without instructions for bf16.
      if (model != "mlp_small" && dtype == at::kBFloat16) continue;
      for (const LabLayout& layout :
           LabLayouts("sequential 1x1x1, 1f1b 1x1x2, zb_v 1x1x2x2")) {
        SCOPED_TRACE(absl::StrCat(model, ", ", layout.name));
        const auto precision = [dtype](auto& options) {
          if (dtype == at::kFloat) return;
          options.ddp.mixed_precision.param_dtype = dtype;
        };
        const Batch test = LabBatch(model, kSamples, kLabSeed, kTest);
        const LabJob averaging = AveragingJob(model, 3, precision);
        LabJob plain = ModelJob(model, kSamples, 3, precision);
        StoredCheckpoint checkpoint;
        double averages_loss = 0;
        ExpectOk(OnLabRanks(
            layout, averaging, [&](const LabRank& rank) -> absl::Status {
              Strategy& strategy = *rank.strategy;
              for (int step = 0; step < 3; ++step) {
                TANDEM_RETURN_IF_ERROR(
                    strategy.TrainStep(averaging.batch(step), kLabRate)
                        .status());
              }
              const TensorsByName before = CopiesOf(strategy.Parameters());
              TANDEM_ASSIGN_OR_RETURN(const Score score,
                                      strategy.Evaluate(test));
              averages_loss = score.loss_sum;
              ExpectSameBits(CopiesOf(strategy.Parameters()), before);
              TANDEM_ASSIGN_OR_RETURN(const WholeState state,
                                      strategy.GatherState());
              NamedTensors whole = state.parameters;
              for (const auto& each : state.buffers) whole.push_back(each);
              checkpoint.model = whole;
              checkpoint.optimizer = state.optimizer;
              return absl::OkStatus();
            }));
        const auto loss = [&](const StoredTensors& weights) {
          double found = 0;
          ExpectOk(OnLabRanks(
              layout, plain, [&](const LabRank& rank) -> absl::Status {
                TANDEM_RETURN_IF_ERROR(rank.strategy->LoadModelState(weights));
                TANDEM_ASSIGN_OR_RETURN(const Score score,
                                        rank.strategy->Evaluate(test));
                found = score.loss_sum;
                return absl::OkStatus();
              }));
          return found;
        };
        EXPECT_EQ(loss(InferenceWeights(checkpoint)), averages_loss);
        EXPECT_NE(loss(checkpoint.model), averages_loss);
      }
    }
  }
}

// Calls `work` with a strategy of two stages.
void WithStrategy(const LabChange& change,
                  const std::function<absl::Status(Strategy& strategy)>& work) {
  ExpectOk(
      OnLabRanks(LabPipeline(2), AveragingJob("mlp_small", 1, change),
                 [&](const LabRank& rank) { return work(*rank.strategy); }));
}

Batch BatchOf(int number) {
  return LabBatch("mlp_small", kSamples, kLabSeed, number);
}

TEST(EmaTest, BeginWithTheFirstUpdate) {
  WithStrategy(nullptr, [](Strategy& strategy) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(strategy.Evaluate(BatchOf(kTest)).status());
    EXPECT_TRUE(AveragesIn(strategy.OptimizerState()).empty());
    TANDEM_RETURN_IF_ERROR(strategy.ComputeGradients(BatchOf(0)).status());
    TANDEM_RETURN_IF_ERROR(strategy.SkipUpdate());
    EXPECT_TRUE(AveragesIn(strategy.OptimizerState()).empty());
    TANDEM_RETURN_IF_ERROR(strategy.ComputeGradients(BatchOf(1)).status());
    TANDEM_RETURN_IF_ERROR(strategy.Update(kLabRate));
    const TensorsByName first = CopiesOf(strategy.Parameters());
    ExpectSameBits(AveragesIn(strategy.OptimizerState()), first);
    TANDEM_RETURN_IF_ERROR(strategy.ComputeGradients(BatchOf(2)).status());
    TANDEM_RETURN_IF_ERROR(strategy.SkipUpdate());
    ExpectSameBits(AveragesIn(strategy.OptimizerState()), first);
    return absl::OkStatus();
  });
}

// A whole evaluation shows them once: with the scores of batch by batch, and
// trained weights afterwards, also where batches end with an error.
TEST(EmaTest, AreShownForAWholeEvaluation) {
  WithStrategy(nullptr, [](Strategy& strategy) -> absl::Status {
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(
          strategy.TrainStep(BatchOf(step), kLabRate).status());
    }
    const TensorsByName before = CopiesOf(strategy.Parameters());
    const TensorsByName averages = AveragesIn(strategy.OptimizerState());
    Score each;
    for (const int number : {kTest, kTest + 1}) {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              strategy.Evaluate(BatchOf(number)));
      each += score;
    }
    int next = 0;
    TANDEM_ASSIGN_OR_RETURN(
        const Score all,
        strategy.EvaluateBatches([&]() -> absl::StatusOr<std::optional<Batch>> {
          if (next == 2) return std::nullopt;
          return BatchOf(kTest + next++);
        }));
    EXPECT_EQ(all.loss_sum, each.loss_sum);
    EXPECT_EQ(all.count, each.count);
    ExpectSameBits(CopiesOf(strategy.Parameters()), before);
    next = 0;
    EXPECT_THAT(
        strategy
            .EvaluateBatches([&]() -> absl::StatusOr<std::optional<Batch>> {
              if (next == 1) return absl::DataLossError("no more");
              return BatchOf(kTest + next++);
            })
            .status(),
        StatusIs(absl::StatusCode::kDataLoss, "no more"));
    ExpectSameBits(CopiesOf(strategy.Parameters()), before);
    ExpectSameBits(AveragesIn(strategy.OptimizerState()), averages);
    return absl::OkStatus();
  });
}

TEST(EmaTest, BeginAnewAfterAStateWithoutThem) {
  WithStrategy(nullptr, [](Strategy& strategy) -> absl::Status {
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(
          strategy.TrainStep(BatchOf(step), kLabRate).status());
    }
    const TensorsByName state =
        CopiesOf(WithoutAverages(strategy.OptimizerState()));
    TANDEM_RETURN_IF_ERROR(
        strategy.LoadOptimizerState(NamedTensors(state.begin(), state.end())));
    EXPECT_TRUE(AveragesIn(strategy.OptimizerState()).empty());
    TANDEM_RETURN_IF_ERROR(strategy.TrainStep(BatchOf(2), kLabRate).status());
    ExpectSameBits(AveragesIn(strategy.OptimizerState()),
                   CopiesOf(strategy.Parameters()));
    return absl::OkStatus();
  });
}

TEST(EmaTest, StateThatDoesNotFitIsRefused) {
  NamedTensors state;
  WithStrategy(nullptr, [&](Strategy& strategy) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(strategy.TrainStep(BatchOf(0), kLabRate).status());
    const TensorsByName copies = CopiesOf(strategy.OptimizerState());
    state.assign(copies.begin(), copies.end());
    NamedTensors without, other = state;
    for (auto& each : other) {
      if (each.first != "fc1.weight.ema") without.push_back(each);
      if (each.first == "fc1.weight.ema") each.second = each.second[0];
    }
    EXPECT_THAT(strategy.CheckOptimizerState(without),
                InvalidArgument("lacks fc1.weight.ema"));
    EXPECT_THAT(strategy.CheckOptimizerState(other),
                InvalidArgument("fc1.weight.ema: expected"));
    ExpectOk(strategy.CheckOptimizerState(state));
    return absl::OkStatus();
  });
  WithStrategy([](auto& options) { options.ema_decay = 0; },
               [&](Strategy& strategy) -> absl::Status {
                 EXPECT_THAT(strategy.CheckOptimizerState(state),
                             InvalidArgument(".ema has no place here"));
                 return absl::OkStatus();
               });
}

TEST(EmaTest, ADecayIsFromZeroToLessThanOne) {
  MeshStrategyOptions options;
  for (const double taken : {0.0, 0.5, 0.9999999}) {
    options.ema_decay = taken;
    ExpectOk(CheckMeshOptions(options));
  }
  for (const double refused :
       {1.0, -0.1, std::numeric_limits<double>::quiet_NaN()}) {
    options.ema_decay = refused;
    EXPECT_THAT(CheckMeshOptions(options),
                InvalidArgument(absl::StrCat("ema_decay is ", refused,
                                             ": must be at least 0 and less "
                                             "than 1")));
  }
}

}  // namespace
}  // namespace tandem::ema_test
