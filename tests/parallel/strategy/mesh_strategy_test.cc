// The mesh strategy: update, state, errors, replicas. That a pipeline
// computes what the uncut model does is pipeline_matrix_test's.

#include "parallel/strategy/mesh_strategy.h"

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/instrument/fault_point.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/strategy/replicated.h"
#include "tests/models/rounding.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 5;
constexpr double kRate = 0.05;

LayerSpecs Specs(const std::string& name) {
  ModelOptions model;
  model.name = name;
  model.tokens = name[0] == 'g';
  model.classes = model.tokens ? 20 : 5;
  model.input_shape = {6};
  return *MakeModel(model);
}

Batch BatchOf(const std::string& name, int64_t size, int number) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", number));
  if (name[0] == 'g') {
    return {at::randint(20, {size, 6}, generator, at::kLong),
            at::randint(20, {size, 6}, generator, at::kLong), size};
  }
  return {at::randn({size, 6}, generator),
          at::randint(5, {size}, generator, at::kLong), size};
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
  options.seed = kSeed;
  return options;
}

absl::StatusOr<std::unique_ptr<MeshStrategy>> OnOneRank(
    const LayerSpecs& specs, const MeshStrategyOptions& options) {
  return MeshStrategy::Create(specs, CrossEntropy, options, nullptr);
}

using Change = std::function<void(MeshStrategyOptions& options)>;

LabJob Job(const std::string& model, int steps,
           const Change& change = nullptr) {
  LabJob job;
  job.specs = [model] { return Specs(model); };
  job.loss = CrossEntropy;
  job.change = [change](MeshStrategyOptions& options) {
    options.seed = kSeed;
    if (change) change(options);
  };
  job.batch = [model](int step) { return BatchOf(model, 12, step); };
  job.steps = steps;
  job.rate = kRate;
  return job;
}

// Two steps, after as many that came to `half`.
LabJob SecondHalf(const std::string& model, const LabOutcome& half,
                  const Change& change) {
  LabJob job = Job(model, 2, change);
  job.batch = [model](int step) { return BatchOf(model, 12, 2 + step); };
  job.begin = [&half](const LabRank& rank) -> absl::Status {
    const auto named = [](const TensorsByName& tensors) {
      return NamedTensors(tensors.begin(), tensors.end());
    };
    TANDEM_RETURN_IF_ERROR(rank.strategy->LoadModelState(named(half.model)));
    TANDEM_RETURN_IF_ERROR(
        rank.strategy->LoadOptimizerState(named(half.optimizer)));
    rank.strategy->ResumeAt(2);
    return absl::OkStatus();
  };
  return job;
}

// Of the same model on one device, whole.
absl::StatusOr<LabOutcome> Reference(const std::string& model,
                                     const ReplicatedOptions& options,
                                     int steps) {
  LabJob job = Job(model, steps);
  job.make = [&](Communicator* world) {
    return MakeReplicated(MakeLayers(Specs(model), kSeed), CrossEntropy,
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
      whole.seed = kSeed;
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
  const LayerSpecs specs = Specs("mlp_small");
  MeshStrategyOptions options = Options(specs, LayoutOf("1f1b", 2, 1));
  options.clip_norm = 1;
  options.error_if_nonfinite = true;
  const auto strategy = OnOneRank(specs, options);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  Batch batch = BatchOf("mlp_small", 12, 0);
  batch.inputs.fill_(std::numeric_limits<float>::infinity());
  const absl::Status status = (*strategy)->TrainStep(batch, kRate).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
}

// Trained over two ranks, on over one device, and the other way round.
TEST(MeshStrategyTest, StateDoesNotDependOnTheLayout) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    for (const OptimizerOptions& optimizer :
         {OptimizerOptions(SgdOptions{0.9}),
          OptimizerOptions(AdamWOptions())}) {
      const Change change = [&](MeshStrategyOptions& options) {
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
  const LayerSpecs specs = Specs("mlp_small");
  for (const int together : {1, 3}) {
    const absl::Status status =
        RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
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
              strategy->TrainStep(BatchOf("mlp_small", 12, 0), kRate).status());
          EXPECT_GT(buckets, 3);
          EXPECT_GT(missing, 3) << together;
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
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

TEST(MeshStrategyTest, MicrobatchesHaveTheSizeThatIsAsked) {
  const LayerSpecs specs = Specs("mlp_small");
  MeshStrategyOptions options = Options(specs, LayoutOf("1f1b", 2, 3));
  options.microbatch_size = 5;  // 5, 5 and 2 of 12
  const auto strategy = OnOneRank(specs, options);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_TRUE((*strategy)->TrainStep(BatchOf("mlp_small", 12, 0), kRate).ok());
  EXPECT_EQ(
      std::string((*strategy)
                      ->TrainStep(BatchOf("mlp_small", 10, 0), kRate)
                      .status()
                      .message()),
      "a batch of 10 samples gives 2 microbatches, but schedule 1f1b has 3");
}

TEST(MeshStrategyTest, SaysWhereTimeWentAndWhatWasHeld) {
  std::string text;
  const absl::Status status = OnLabRanks(
      LayoutOf("1f1b", 2, 4, 2), Job("mlp_small", 4),
      [&](const LabRank& rank) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const std::string none,
                                rank.strategy->DescribeTimes());
        EXPECT_EQ(none, "");
        for (int i = 0; i < 4; ++i) {
          TANDEM_RETURN_IF_ERROR(
              rank.strategy->TrainStep(BatchOf("mlp_small", 12, i), kRate)
                  .status());
        }
        TANDEM_ASSIGN_OR_RETURN(const std::string mine,
                                rank.strategy->DescribeTimes());
        if (rank.rank == 0) text = mine;
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(text, HasSubstr("1f1b: 2 stages on 2 devices, 4 microbatches"));
  EXPECT_THAT(text, HasSubstr("bound): device 0: 2 (2), device 1: 1 (1)"));
}

// The second stage's third layer fails on rank 1: rank 0 is told.
TEST(MeshStrategyTest, AFailureIsTheErrorOfEveryRank) {
  LayerSpecs specs = Specs("mlp_small");
  specs.back().make = [make = specs.back().make](uint64_t seed) {
    Layer layer = make(seed);
    layer.forward = [](const at::Tensor&) -> at::Tensor {
      TORCH_CHECK(false, "this layer is broken");
    };
    return layer;
  };
  for (const char* backend : {"gloo", "shm"}) {
    std::vector<absl::Status> said(2);
    LabLayout layout = LayoutOf("1f1b", 2, 4, 2);
    layout.backend = backend;
    LabJob job = Job("mlp_small", 1);
    job.specs = [&] { return specs; };
    const absl::Status status =
        OnLabRanks(layout, job, [&](const LabRank& rank) {
          said[static_cast<size_t>(rank.rank)] =
              rank.strategy->TrainStep(BatchOf("mlp_small", 12, 0), kRate)
                  .status();
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
    const std::string where =
        absl::StrCat("forward of microbatch 0 in stage 1, on cpu: layer ",
                     specs.back().name, ": this layer is broken");
    for (const absl::Status& each : said) {
      EXPECT_THAT(std::string(each.message()), HasSubstr(where)) << backend;
    }
  }
}

TEST(MeshStrategyTest, ThereIsAFaultPointBeforeTheOptimizer) {
  const LayerSpecs specs = Specs("mlp_small");
  const auto strategy =
      OnOneRank(specs, Options(specs, LayoutOf("1f1b", 2, 2)));
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  ArmFaults(*ParseFaults("point=before_optimizer,action=fail"));
  const absl::Status status =
      (*strategy)->TrainStep(BatchOf("mlp_small", 12, 0), kRate).status();
  ArmFaults({});
  EXPECT_THAT(std::string(status.message()), HasSubstr("before_optimizer"));
}

TEST(MeshStrategyTest, RefusesWhatMakesNoSense) {
  const LayerSpecs specs = Specs("mlp_small");
  const auto said = [&](const MeshStrategyOptions& options) {
    return std::string(OnOneRank(specs, options).status().message());
  };
  MeshStrategyOptions options = Options(specs, LayoutOf("1f1b", 2, 2));
  options.clip_norm = -1;
  EXPECT_THAT(said(options), HasSubstr("clip_norm"));
  options = Options(specs, LayoutOf("1f1b", 2, 2));
  options.clip_norm_type = 0;
  EXPECT_THAT(said(options), HasSubstr("clip_norm_type"));
  options = Options(specs, LayoutOf("1f1b", 2, 2));
  options.weight_gradient_batch = 0;
  EXPECT_THAT(said(options), HasSubstr("weight_gradient_batch"));
  options = Options(specs, LayoutOf("1f1b", 2, 2));
  options.schedule.actions[0].pop_back();
  EXPECT_THAT(said(options), HasSubstr("microbatch"));
}

TEST(MeshStrategyTest, StateOfAnotherModelIsRefused) {
  const LayerSpecs specs = Specs("mlp_small");
  const auto strategy =
      OnOneRank(specs, Options(specs, LayoutOf("1f1b", 2, 2)));
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  NamedTensors state = (*strategy)->Parameters();
  state.pop_back();
  EXPECT_FALSE((*strategy)->LoadModelState(state).ok());
  EXPECT_FALSE(
      (*strategy)
          ->LoadOptimizerState({{"nobody.momentum_buffer", at::zeros({1})}})
          .ok());
}

class ReplicasTest : public testing::TestWithParam<LabLayout> {};

constexpr int64_t kBatch = 24;  // of all replicas

LabJob ReplicasJob(const std::string& model, const Change& change = nullptr) {
  LabJob job = Job(model, 3, [change](MeshStrategyOptions& options) {
    options.ddp.bucket_cap_mb = 1.0 / 1024;  // several buckets
    if (change) change(options);
  });
  job.batch = [model](int step) { return BatchOf(model, kBatch, step); };
  return job;
}

// Replicas of a part of the model must have the same bits after every step.
absl::StatusOr<Score> StepAlike(const LabLayout& layout, const LabRank& rank,
                                const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          rank.strategy->TrainStep(batch, kRate));
  EXPECT_EQ(score.count, layout.replicas * batch.targets.numel());
  NamedTensors mine = rank.strategy->Parameters();
  for (const NamedTensors& part :
       {rank.strategy->Buffers(), rank.strategy->OptimizerState()}) {
    mine.insert(mine.end(), part.begin(), part.end());
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          rank.world->AllGatherString(WeightsSha256(mine)));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], all[i % static_cast<size_t>(layout.pipe)])
        << "rank " << i;
  }
  return score;
}

TEST_P(ReplicasTest, AreAlikeAndTrainAsOneDeviceOnTheWholeBatch) {
  LabLayout layout = GetParam();
  layout.microbatches = 4 * layout.replicas;
  for (const std::string model : {"mlp_small", "gpt_tiny_tied"}) {
    LabJob job = ReplicasJob(model);
    job.step = [&](const LabRank& rank, const Batch& batch, int step) {
      SCOPED_TRACE(absl::StrCat("step ", step));
      return StepAlike(layout, rank, batch);
    };
    LabJob on_one = ReplicasJob(model);
    TensorsByName initial;
    on_one.begin = [&](const LabRank& rank) {
      initial = CopiesOf(rank.strategy->Parameters());
      return absl::OkStatus();
    };
    const auto expected = TrainInLab(LayoutOf("gpipe", 1, 1), on_one);
    ExpectClose(TrainInLab(layout, job), expected);
    for (const auto& [name, tensor] : initial) {
      EXPECT_FALSE(expected->model.at(name).equal(tensor))
          << name << " did not move";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ReplicasTest,
    testing::Values(LabLayout{"Ddp", "1f1b", 2, 1, 1},
                    LabLayout{"DdpOfThree", "gpipe", 3, 1, 1},
                    LabLayout{"Pairs", "1f1b", 2, 1, 2},
                    LabLayout{"OverRanks", "1f1b", 2, 2, 1},
                    LabLayout{"PairsOverRanks", "gpipe", 2, 2, 2},
                    LabLayout{"ZeroBubble", "zb_h1", 2, 1, 2},
                    LabLayout{"VShaped", "zb_v", 2, 1, 2, 2},
                    LabLayout{"Chunks", "interleaved_1f1b", 2, 2, 1, 2},
                    LabLayout{"Together", "1f1b", 2, 1, 2, 1, 12,
                              ActivationCheckpointing::kNever, 3},
                    LabLayout{"OneReplica", "1f1b", 1, 2, 1}),
    [](const auto& info) { return info.param.name; });

TEST(ReproducibleTest, EveryLayoutGivesOneDevicesBits) {
  const std::vector<LabLayout> layouts = {
      {"two replicas", "1f1b", 2, 1, 1},
      {"three replicas", "gpipe", 3, 1, 1},
      {"four replicas", "1f1b", 4, 1, 1},
      {"a pair", "1f1b", 1, 1, 2},
      {"three stages", "gpipe", 1, 3, 1},
      {"zero bubble", "zb_h1", 1, 2, 1},
      {"two pairs", "zb_h1", 2, 1, 2},
      {"three pairs over ranks", "1f1b", 3, 2, 1},
      {"V", "zb_v", 2, 1, 2, 2},
      {"chunks", "interleaved_1f1b", 2, 2, 1, 2},
      {"breadth first", "looped_bfs", 2, 1, 2, 2},
  };
  int compared = 0;
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const int groups : {0, 6}) {
      const LabJob job = ReplicasJob(model, [&](auto& options) {
        options.reproducible = true;
        options.gradient_groups = groups;
        options.clip_norm = 0.5;
      });
      const auto one = TrainInLab({"one"}, job);
      for (const LabLayout& layout : layouts) {
        const bool descends = layout.schedule == "gpipe";
        if (groups > 0 && (descends || groups % layout.replicas != 0)) {
          continue;
        }
        SCOPED_TRACE(absl::StrCat(model, ", ", layout.name, ", ", groups));
        ExpectSameBits(TrainInLab(layout, job), one);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 2 * (11 + 8));
}

TEST(ReplicasTest, AFailureOfOneIsTheErrorOfAll) {
  std::vector<absl::Status> ends(4);
  const absl::Status status =
      OnLabRanks({"pairs", "1f1b", 2, 2, 1, 1, 8}, Job("mlp_small", 1),
                 [&](const LabRank& rank) {
                   Batch batch = BatchOf("mlp_small", 12, 0);
                   if (rank.rank == 2)
                     batch.inputs = batch.inputs.narrow(1, 0, 3);
                   ends[static_cast<size_t>(rank.rank)] =
                       rank.strategy->TrainStep(batch, kRate).status();
                   return absl::OkStatus();
                 });
  ASSERT_TRUE(status.ok()) << status;
  for (int rank = 0; rank < 4; ++rank) {
    const absl::Status& end = ends[static_cast<size_t>(rank)];
    EXPECT_FALSE(end.ok()) << rank;
    EXPECT_THAT(std::string(end.message()), HasSubstr("layer fc1")) << rank;
  }
}

}  // namespace
}  // namespace tandem
