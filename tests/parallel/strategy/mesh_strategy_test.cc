// The mesh strategy: update, state. That a pipeline computes what the
// uncut model does is matrix_test's.

#include "parallel/strategy/mesh_strategy.h"

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "parallel/strategy/replicated.h"
#include "tests/models/rounding.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::mesh_strategy_test {
namespace {

using testing::HasSubstr;

LabJob Job(const std::string& model, int steps,
           const LabChange& change = nullptr) {
  return ModelJob(model, /*size=*/12, steps, change);
}

Batch BatchOf(const std::string& model, int number) {
  return Job(model, 1).batch(number);
}

// On ranks that each have as many devices as there are stages for them.
LabLayout LayoutOf(const std::string& schedule, int stages, int microbatches,
                   int ranks = 1) {
  LabLayout layout = {"", schedule, 1, ranks, stages / ranks};
  layout.microbatches = microbatches;
  return layout;
}

MeshStrategyOptions Options(const LayerSpecs& specs, const LabLayout& layout) {
  MeshStrategyOptions options =
      LabOptions(layout, static_cast<int64_t>(specs.size()));
  options.seed = kLabSeed;
  return options;
}

// Two steps, after as many that came to `half`.
LabJob SecondHalf(const std::string& model, const LabOutcome& half,
                  const LabChange& change) {
  LabJob job = Job(model, 2, change);
  job.batch = [model](int step) { return BatchOf(model, 2 + step); };
  job.begin = [&half](const LabRank& rank) {
    return Resume(*rank.strategy, half, 2);
  };
  return job;
}

// The outcome of the same model on one device, whole.
absl::StatusOr<LabOutcome> Reference(const std::string& model,
                                     const ReplicatedOptions& options,
                                     int steps) {
  LabJob job = Job(model, steps);
  job.make = [&](Communicator* world) {
    return MakeReplicated(MakeLayers(LabSpecs(model), kLabSeed), CrossEntropy,
                          options, *world);
  };
  LabLayout one;
  one.group_of_one = true;
  return TrainInLab(one, job);
}

TEST(MeshStrategyTest, ClipsByTheNormOfTheWholeModel) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    for (double type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
      ReplicatedOptions whole;
      whole.seed = kLabSeed;
      whole.clip_norm = 0.05;
      whole.clip_norm_type = type;
      const auto expected = Reference(model, whole, 3);
      for (int ranks : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(model, " norm ", type, " ranks ", ranks));
        const auto found = TrainInLab(LayoutOf("1f1b", 2, 1, ranks),
                                      Job(model, 3, [&](auto& options) {
                                        options.clip_norm = whole.clip_norm;
                                        options.clip_norm_type = type;
                                      }));
        ExpectClose(found, expected, {1e-5, 1e-6, 1e-6});
        for (size_t i = 0; found.ok() && i < 3; ++i) {
          const double loss = expected->scores[i].loss();
          EXPECT_NEAR(found->scores[i].loss(), loss,
                      RoundingTolerance(at::kFloat, 128, loss));
        }
      }
    }
  }
}

TEST(MeshStrategyTest, ClipsByValue) {
  ReplicatedOptions whole;
  whole.clip_value = 1e-3;
  const auto found = TrainInLab(LayoutOf("1f1b", 2, 1),
                                Job("mlp_small", 2, [&](auto& options) {
                                  options.clip_value = whole.clip_value;
                                }));
  ExpectSameBits(found, Reference("mlp_small", whole, 2));
}

TEST(MeshStrategyTest, ANormThatIsNotFiniteIsAnErrorIfAsked) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  MeshStrategyOptions options = Options(specs, LayoutOf("1f1b", 2, 1));
  options.clip_norm = 1;
  options.error_if_nonfinite = true;
  const auto strategy = OnOneRank(specs, options);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  Batch batch = BatchOf("mlp_small", 0);
  batch.inputs.fill_(std::numeric_limits<float>::infinity());
  const absl::Status status = (*strategy)->TrainStep(batch, kLabRate).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
}

// Trained over two ranks, on over one device, and the other way round.
TEST(MeshStrategyTest, StateDoesNotDependOnTheLayout) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    for (const OptimizerOptions& optimizer :
         {OptimizerOptions(SgdOptions{0.9}),
          OptimizerOptions(AdamWOptions())}) {
      const LabChange change = [&](MeshStrategyOptions& options) {
        options.optimizer = optimizer;
      };
      const LabLayout one = LayoutOf("gpipe", 1, 1);
      const LabLayout two = LayoutOf("1f1b", 2, 1, /*ranks=*/2);
      const auto expected = TrainInLab(one, Job(model, 4, change));
      ASSERT_TRUE(expected.ok()) << expected.status();
      std::vector<absl::StatusOr<LabOutcome>> wholes;
      for (const auto& [first, second] : {std::pair(two, one), {one, two}}) {
        const auto half = TrainInLab(first, Job(model, 2, change));
        ASSERT_TRUE(half.ok()) << half.status();
        const auto& whole = wholes.emplace_back(
            TrainInLab(second, SecondHalf(model, *half, change)));
        ASSERT_TRUE(whole.ok()) << whole.status();
        ExpectSameBits(whole->model, expected->model);
        ExpectSameBits(whole->optimizer, expected->optimizer);
      }
      ExpectSameBits(wholes[1], wholes[0]);
    }
  }
}

TEST(MeshStrategyTest, WeightGradientsTogetherAreTheSame) {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    LabLayout layout = LayoutOf(schedule, 2, 4);
    const auto expected = TrainInLab(layout, Job("mlp_dropout", 3));
    for (int together : {2, 3, 4, 8}) {
      layout.weight_gradient_batch = together;
      const auto found = TrainInLab(layout, Job("mlp_dropout", 3));
      ExpectClose(found, expected, {1e-5, 1e-5, 1e-5});
    }
  }
}

// When the first bucket starts, other weights' gradients are still to come.
TEST(MeshStrategyTest, BucketsStartWhileDeferredWeightGradientsAreComputed) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  for (const int together : {1, 3}) {
    ExpectOk(RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
      MeshStrategyOptions options =
          Options(specs, LayoutOf(together == 1 ? "zb_h1" : "1f1b", 1, 1));
      options.weight_gradient_batch = together;
      options.ddp.bucket_cap_mb = 1.0 / 1024;
      NamedTensors parameters;
      int buckets = 0, missing = 0;
      const CommunicationHook hook =
          [&](const GradBucket& bucket,
              Communicator& group) -> absl::StatusOr<FinishReduction> {
        ++buckets;
        for (const auto& each : parameters) {
          if (bucket.index == 0) missing += !each.second.grad().defined();
        }
        return FinishReduction([bucket, &group] {
          return group.AllReduceSum(bucket.buffer.div_(group.size()));
        });
      };
      options.make_hook = [&] { return hook; };
      TANDEM_ASSIGN_OR_RETURN(
          const std::unique_ptr<MeshStrategy> strategy,
          MeshStrategy::Create(specs, CrossEntropy, options, &world));
      parameters = strategy->Parameters();
      TANDEM_RETURN_IF_ERROR(
          strategy->TrainStep(BatchOf("mlp_small", 0), kLabRate).status());
      EXPECT_GT(buckets, 3);
      EXPECT_GT(missing, 3) << together;
      return absl::OkStatus();
    }));
  }
}

TEST(MeshStrategyTest, ParameterGroupsHaveOptimizersOfTheirOwn) {
  const auto change = [](UpdateOptions& options) {
    SgdOptions decaying;
    decaying.weight_decay = 0.1;
    options.optimizer = decaying;
    options.further_optimizers = {SgdOptions{}};
    options.optimizer_group = [](const std::string& name) -> int64_t {
      return name.find("bias") != std::string::npos ? 1 : 0;
    };
  };
  ReplicatedOptions whole;
  change(whole);
  ExpectSameBits(
      TrainInLab(LayoutOf("1f1b", 2, 1), Job("mlp_small", 2, change)),
      Reference("mlp_small", whole, 2));
}

// Wherever its names are.
TEST(MeshStrategyTest, ATiedWeightIsInTheGroupOfAnyOfItsNames) {
  static constexpr char kFirst[] = "transformer.wte.weight";
  const auto trained = [](const LabLayout& layout, const std::string& name) {
    LabJob job = Job("gpt_tiny_tied", 2, [name](auto& options) {
      SgdOptions decaying;
      decaying.weight_decay = 0.5;
      options.further_optimizers = {decaying};
      options.optimizer_group = [name](const std::string& each) -> int64_t {
        return each == name ? 1 : 0;
      };
    });
    job.begin = [&](const LabRank& rank) {
      for (const auto& [parameter, group] : rank.strategy->OptimizerGroups()) {
        EXPECT_EQ(group, !name.empty() && parameter == kFirst) << parameter;
      }
      return absl::OkStatus();
    };
    return TrainInLab(layout, job);
  };
  for (const LabLayout& layout :
       {LayoutOf("1f1b", 1, 1), LayoutOf("1f1b", 2, 1),
        LayoutOf("1f1b", 2, 1, 2)}) {
    const auto expected = trained(layout, kFirst);
    ExpectSameBits(trained(layout, "lm_head.weight"), expected);
    const auto none = trained(layout, "");
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_FALSE(none->model.at(kFirst).equal(expected->model.at(kFirst)));
  }
}

// What the last stage's copy of a tied weight has of the optimizer and of
// averages is what the first stage's has, under its name, on another rank
// alone.
TEST(MeshStrategyTest, AStageHasTheStateOfItsCopiesOfTiedWeights) {
  const auto change = [](MeshStrategyOptions& options) {
    options.optimizer = AdamOptions();
    options.ema_decay = 0.9;
  };
  for (const int ranks : {1, 2}) {
    std::vector<TensorsByName> copies(2), own(2);
    LabJob job = Job("gpt_tiny_tied", 2, change);
    job.end = [&](const LabRank& rank) {
      const auto i = static_cast<size_t>(rank.rank);
      own[i] = CopiesOf(rank.strategy->OptimizerState());
      copies[i] = CopiesOf(rank.strategy->OptimizerStateOfCopies());
      return absl::OkStatus();
    };
    const auto trained = TrainInLab(LayoutOf("1f1b", 2, 4, ranks), job);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_TRUE(copies[0].empty());
    EXPECT_EQ(copies[1].empty(), ranks == 1);
    for (const char* state : {"exp_avg", "exp_avg_sq", "step", "ema"}) {
      if (ranks == 1) continue;
      const std::string name = absl::StrCat("transformer.wte.weight.", state);
      ASSERT_EQ(copies[1].count(name), 1u) << name;
      EXPECT_TRUE(copies[1].at(name).equal(own[0].at(name))) << name;
    }
  }
}

TEST(MeshStrategyTest, MicrobatchesHaveTheSizeThatIsAsked) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  MeshStrategyOptions options = Options(specs, LayoutOf("1f1b", 2, 3));
  options.microbatch_size = 5;  // 5, 5 and 2 of 12
  const auto strategy = OnOneRank(specs, options);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_TRUE((*strategy)->TrainStep(BatchOf("mlp_small", 0), kLabRate).ok());
  EXPECT_EQ(
      std::string(
          (*strategy)
              ->TrainStep(LabBatch("mlp_small", 10, kLabSeed, 0), kLabRate)
              .status()
              .message()),
      "a batch of 10 samples gives 2 microbatches, but schedule 1f1b has 3");
}

TEST(MeshStrategyTest, SaysWhereTimeWentAndWhatWasHeld) {
  std::string text;
  ExpectOk(OnLabRanks(LayoutOf("1f1b", 2, 4, 2), Job("mlp_small", 4),
                      [&](const LabRank& rank) -> absl::Status {
                        TANDEM_ASSIGN_OR_RETURN(const std::string none,
                                                rank.strategy->DescribeTimes());
                        EXPECT_EQ(none, "");
                        for (int i = 0; i < 4; ++i) {
                          TANDEM_RETURN_IF_ERROR(
                              rank.strategy
                                  ->TrainStep(BatchOf("mlp_small", i), kLabRate)
                                  .status());
                        }
                        TANDEM_ASSIGN_OR_RETURN(const std::string mine,
                                                rank.strategy->DescribeTimes());
                        if (rank.rank == 0) text = mine;
                        return absl::OkStatus();
                      }));
  EXPECT_THAT(text, HasSubstr("1f1b: 2 stages on 2 devices, 4 microbatches"));
  EXPECT_THAT(text, HasSubstr("bound): device 0: 2 (2), device 1: 1 (1)"));
}

// It stays frozen, as its owner leaves it, whatever trains and evaluates around
// it.
TEST(MeshStrategyTest, AModuleInEvaluationModeStaysInIt) {
  const auto norm = [](bool frozen) {
    return ModuleLayer<torch::nn::BatchNorm1dImpl>(
        frozen ? "frozen" : "trained", "BatchNorm1d",
        [frozen] {
          const auto module = std::make_shared<torch::nn::BatchNorm1dImpl>(4);
          module->train(!frozen);
          return module;
        },
        KeepsItsValues);
  };
  LabJob job = Job("mlp_small", 2);
  job.specs = [&] {
    return LayerSpecs{LinearLayer("fc1", 6, 4), norm(true), norm(false),
                      LinearLayer("fc2", 4, 5)};
  };
  job.test = 2;
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    TANDEM_RETURN_IF_ERROR(
        rank.strategy->Evaluate(BatchOf("mlp_small", step)).status());
    return rank.strategy->TrainStep(batch, kLabRate);
  };
  for (const LabLayout& layout :
       {LayoutOf("1f1b", 1, 1), LayoutOf("1f1b", 2, 2)}) {
    const auto trained = TrainInLab(layout, job);
    ASSERT_TRUE(trained.ok()) << trained.status();
    const TensorsByName& model = trained->model;
    const auto seen = [&](const std::string& layer) {
      return model.at(layer + ".num_batches_tracked").item<int64_t>();
    };
    EXPECT_EQ(seen("frozen"), 0);
    EXPECT_EQ(seen("trained"), 2 * layout.microbatches);
    EXPECT_TRUE(model.at("frozen.running_mean").eq(0).all().item<bool>());
    EXPECT_FALSE(model.at("trained.running_mean").eq(0).all().item<bool>());
  }
}

}  // namespace
}  // namespace tandem::mesh_strategy_test
