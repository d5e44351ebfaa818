// The mesh strategy: update, state, errors, replicas. That a pipeline
// computes what the uncut model does is pipeline_matrix_test's.

#include "parallel/strategy/mesh_strategy.h"

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <map>
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
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/replicated.h"
#include "tests/models/rounding.h"

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

MeshStrategyOptions Options(const LayerSpecs& specs,
                            const std::string& schedule, int stages,
                            int microbatches, int ranks = 1) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule(schedule, {stages, 1, microbatches});
  options.cuts = *UniformCuts(static_cast<int64_t>(specs.size()), stages);
  options.devices.assign(static_cast<size_t>(stages / ranks), c10::kCPU);
  options.seed = kSeed;
  return options;
}

using Make = std::function<absl::StatusOr<std::unique_ptr<Strategy>>(
    Communicator* pipe)>;

Make MakeHybrid(const LayerSpecs& specs, const MeshStrategyOptions& options) {
  return [specs, options](Communicator* pipe) {
    return MeshStrategy::Create(specs, CrossEntropy, options, pipe);
  };
}

// What a job comes to, on rank 0.
struct Trial {
  WholeState state;
  std::vector<double> losses;
};

// `steps` steps, after the state of `from`, if it is given.
absl::Status Train(const Make& make, const std::string& model, int first,
                   int steps, const WholeState* from, Communicator* pipe,
                   Trial* run) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Strategy> strategy, make(pipe));
  if (from != nullptr) {
    NamedTensors state = from->parameters;
    state.insert(state.end(), from->buffers.begin(), from->buffers.end());
    TANDEM_RETURN_IF_ERROR(strategy->LoadModelState(state));
    TANDEM_RETURN_IF_ERROR(strategy->LoadOptimizerState(from->optimizer));
    strategy->ResumeAt(first);
  }
  Trial mine;
  for (int i = 0; i < steps; ++i) {
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(BatchOf(model, 12, first + i), kRate));
    mine.losses.push_back(score.loss());
  }
  TANDEM_ASSIGN_OR_RETURN(WholeState state, strategy->GatherState());
  for (const auto& [name, tensor] : state.parameters) {
    mine.state.parameters.emplace_back(name, tensor.detach().clone());
  }
  mine.state.buffers = std::move(state.buffers);
  mine.state.optimizer = std::move(state.optimizer);
  if (pipe == nullptr || pipe->rank() == 0) *run = std::move(mine);
  return absl::OkStatus();
}

Trial Trained(const Make& make, const std::string& model, int first, int steps,
              const WholeState* from = nullptr, int ranks = 1) {
  Trial run;
  absl::Status status;
  if (ranks == 1) {
    status = Train(make, model, first, steps, from, nullptr, &run);
  } else {
    status = RunThreadRanks(ranks, [&](Communicator& world) {
      return Train(make, model, first, steps, from, &world, &run);
    });
  }
  EXPECT_TRUE(status.ok()) << status;
  return run;
}

void ExpectClose(const NamedTensors& found, const NamedTensors& expected,
                 double tolerance) {
  std::map<std::string, at::Tensor> tensors(found.begin(), found.end());
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(tensors.count(name), 1u) << name;
    const at::Tensor its = tensors.at(name);
    EXPECT_TRUE(tolerance == 0 ? its.equal(tensor)
                               : its.allclose(tensor, tolerance, tolerance))
        << name;
  }
}

// Of the same model on one device, whole.
Trial Reference(const std::string& model, const ReplicatedOptions& options,
                int steps) {
  Trial run;
  const absl::Status status = RunThreadRanks(1, [&](Communicator& world) {
    const Make make = [&](Communicator*) {
      return MakeReplicated(MakeLayers(Specs(model), kSeed), CrossEntropy,
                            options, world);
    };
    return Train(make, model, 0, steps, nullptr, nullptr, &run);
  });
  EXPECT_TRUE(status.ok()) << status;
  return run;
}

TEST(MeshStrategyTest, ClipsByTheNormOfTheWholeModel) {
  for (const char* model : {"mlp_small", "gpt_tiny_tied"}) {
    for (double type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
      ReplicatedOptions whole;
      whole.seed = kSeed;
      whole.clip_norm = 0.05;
      whole.clip_norm_type = type;
      const Trial expected = Reference(model, whole, 3);
      for (int ranks : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(model, " norm ", type, " ranks ", ranks));
        const LayerSpecs specs = Specs(model);
        MeshStrategyOptions options = Options(specs, "1f1b", 2, 1, ranks);
        options.clip_norm = whole.clip_norm;
        options.clip_norm_type = type;
        const Trial found =
            Trained(MakeHybrid(specs, options), model, 0, 3, nullptr, ranks);
        ExpectClose(found.state.parameters, expected.state.parameters, 1e-6);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_NEAR(found.losses[i], expected.losses[i],
                      RoundingTolerance(at::kFloat, 128, expected.losses[i]));
        }
      }
    }
  }
}

TEST(MeshStrategyTest, ClipsByValue) {
  ReplicatedOptions whole;
  whole.clip_value = 1e-3;
  const Trial expected = Reference("mlp_small", whole, 2);
  const LayerSpecs specs = Specs("mlp_small");
  MeshStrategyOptions options = Options(specs, "1f1b", 2, 1);
  options.clip_value = whole.clip_value;
  const Trial found = Trained(MakeHybrid(specs, options), "mlp_small", 0, 2);
  ExpectClose(found.state.parameters, expected.state.parameters, 0);
}

TEST(MeshStrategyTest, ANormThatIsNotFiniteIsAnErrorIfAsked) {
  const LayerSpecs specs = Specs("mlp_small");
  MeshStrategyOptions options = Options(specs, "1f1b", 2, 1);
  options.clip_norm = 1;
  options.error_if_nonfinite = true;
  const auto strategy = MakeHybrid(specs, options)(nullptr);
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
      const LayerSpecs specs = Specs(model);
      MeshStrategyOptions two = Options(specs, "1f1b", 2, 1, /*ranks=*/2);
      two.optimizer = optimizer;
      MeshStrategyOptions one = Options(specs, "gpipe", 1, 1);
      one.optimizer = optimizer;
      const Trial expected = Trained(MakeHybrid(specs, one), model, 0, 4);
      const Trial half = Trained(MakeHybrid(specs, two), model, 0, 2, nullptr,
                                 /*ranks=*/2);
      const Trial on_one =
          Trained(MakeHybrid(specs, one), model, 2, 2, &half.state);
      ExpectClose(on_one.state.parameters, expected.state.parameters, 0);
      ExpectClose(on_one.state.optimizer, expected.state.optimizer, 0);
      const Trial half_one = Trained(MakeHybrid(specs, one), model, 0, 2);
      const Trial on_two = Trained(MakeHybrid(specs, two), model, 2, 2,
                                   &half_one.state, /*ranks=*/2);
      ExpectClose(on_two.state.parameters, expected.state.parameters, 0);
      ExpectClose(on_two.state.optimizer, expected.state.optimizer, 0);
      EXPECT_EQ(on_two.losses, on_one.losses);
    }
  }
}

TEST(MeshStrategyTest, WeightGradientsTogetherAreTheSame) {
  const LayerSpecs specs = Specs("mlp_dropout");
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    MeshStrategyOptions options = Options(specs, schedule, 2, 4);
    const Trial expected =
        Trained(MakeHybrid(specs, options), "mlp_dropout", 0, 3);
    for (int together : {2, 3, 4, 8}) {
      options.weight_gradient_batch = together;
      const Trial found =
          Trained(MakeHybrid(specs, options), "mlp_dropout", 0, 3);
      ExpectClose(found.state.parameters, expected.state.parameters, 1e-5);
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
              Options(specs, together == 1 ? "zb_h1" : "1f1b", 1, 1);
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
  const LayerSpecs specs = Specs("mlp_small");
  const auto is_bias = [](const std::string& name) -> int64_t {
    return name.find("bias") != std::string::npos ? 1 : 0;
  };
  SgdOptions decaying;
  decaying.weight_decay = 0.1;
  ReplicatedOptions whole;
  whole.optimizer = decaying;
  whole.further_optimizers = {SgdOptions{}};
  whole.optimizer_group = is_bias;
  const Trial expected = Reference("mlp_small", whole, 2);
  MeshStrategyOptions options = Options(specs, "1f1b", 2, 1);
  options.optimizer = decaying;
  options.further_optimizers = {SgdOptions{}};
  options.optimizer_group = is_bias;
  const Trial found = Trained(MakeHybrid(specs, options), "mlp_small", 0, 2);
  ExpectClose(found.state.parameters, expected.state.parameters, 0);
}

TEST(MeshStrategyTest, MicrobatchesHaveTheSizeThatIsAsked) {
  const LayerSpecs specs = Specs("mlp_small");
  MeshStrategyOptions options = Options(specs, "1f1b", 2, 3);
  options.microbatch_size = 5;  // 5, 5 and 2 of 12
  const auto strategy = MakeHybrid(specs, options)(nullptr);
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
  const LayerSpecs specs = Specs("mlp_small");
  std::string text;
  const absl::Status status = RunThreadRanks(2, [&](Communicator& world) {
    return [&]() -> absl::Status {
      const MeshStrategyOptions options = Options(specs, "1f1b", 2, 4, 2);
      TANDEM_ASSIGN_OR_RETURN(
          const auto strategy,
          MeshStrategy::Create(specs, CrossEntropy, options, &world));
      TANDEM_ASSIGN_OR_RETURN(const std::string none,
                              strategy->DescribeTimes());
      EXPECT_EQ(none, "");
      for (int i = 0; i < 4; ++i) {
        TANDEM_RETURN_IF_ERROR(
            strategy->TrainStep(BatchOf("mlp_small", 12, i), kRate).status());
      }
      TANDEM_ASSIGN_OR_RETURN(const std::string mine,
                              strategy->DescribeTimes());
      if (world.rank() == 0) text = mine;
      return absl::OkStatus();
    }();
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
    CommunicatorOptions communication;
    communication.backend = backend;
    communication.all_local = true;
    communication.timeout = std::chrono::seconds(20);
    const absl::Status status = RunThreadRanks(
        2,
        [&](Communicator& world) -> absl::Status {
          const MeshStrategyOptions options = Options(specs, "1f1b", 2, 4, 2);
          TANDEM_ASSIGN_OR_RETURN(
              const auto strategy,
              MeshStrategy::Create(specs, CrossEntropy, options, &world));
          said[static_cast<size_t>(world.rank())] =
              strategy->TrainStep(BatchOf("mlp_small", 12, 0), kRate).status();
          return absl::OkStatus();
        },
        communication);
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
      MakeHybrid(specs, Options(specs, "1f1b", 2, 2))(nullptr);
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
    return std::string(MakeHybrid(specs, options)(nullptr).status().message());
  };
  MeshStrategyOptions options = Options(specs, "1f1b", 2, 2);
  options.clip_norm = -1;
  EXPECT_THAT(said(options), HasSubstr("clip_norm"));
  options = Options(specs, "1f1b", 2, 2);
  options.clip_norm_type = 0;
  EXPECT_THAT(said(options), HasSubstr("clip_norm_type"));
  options = Options(specs, "1f1b", 2, 2);
  options.weight_gradient_batch = 0;
  EXPECT_THAT(said(options), HasSubstr("weight_gradient_batch"));
  options = Options(specs, "1f1b", 2, 2);
  options.schedule.actions[0].pop_back();
  EXPECT_THAT(said(options), HasSubstr("microbatch"));
}

TEST(MeshStrategyTest, StateOfAnotherModelIsRefused) {
  const LayerSpecs specs = Specs("mlp_small");
  const auto strategy =
      MakeHybrid(specs, Options(specs, "1f1b", 2, 2))(nullptr);
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  NamedTensors state = (*strategy)->Parameters();
  state.pop_back();
  EXPECT_FALSE((*strategy)->LoadModelState(state).ok());
  EXPECT_FALSE(
      (*strategy)
          ->LoadOptimizerState({{"nobody.momentum_buffer", at::zeros({1})}})
          .ok());
}

struct Layout {
  std::string name;
  std::string schedule;
  int ranks;
  int devices;  // of a replica
  int devices_per_rank;
  int chunks = 1;
  int weight_gradient_batch = 1;

  int replicas() const { return ranks * devices_per_rank / devices; }
};

class ReplicasTest : public testing::TestWithParam<Layout> {};

constexpr int64_t kBatch = 24;  // of all replicas
constexpr int kSteps = 3;

MeshStrategyOptions OptionsOf(const LayerSpecs& specs, const Layout& layout,
                              int microbatches) {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule(
      layout.schedule, {layout.devices, layout.chunks, microbatches});
  options.cuts =
      *UniformCuts(static_cast<int64_t>(specs.size()), options.schedule.stages);
  options.devices.assign(static_cast<size_t>(layout.devices_per_rank),
                         c10::kCPU);
  options.weight_gradient_batch = layout.weight_gradient_batch;
  options.seed = kSeed;
  // Several buckets.
  options.ddp.bucket_cap_mb = 1.0 / 1024;
  return options;
}

// The part of the whole batch that a replica has.
Batch PartOf(const Batch& batch, int replica, int replicas) {
  const int64_t size = batch.size / replicas;
  return {batch.inputs.narrow(0, replica * size, size),
          batch.targets.narrow(0, replica * size, size), size};
}

// Replicas of a part of the model must have the same bits after every step.
absl::Status TrainReplica(const std::string& model, const Layout& layout,
                          Communicator& world, Trial* trial) {
  const LayerSpecs specs = Specs(model);
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> strategy,
      MeshStrategy::Create(specs, CrossEntropy, OptionsOf(specs, layout, 4),
                           &world));
  const int pipe = layout.ranks / layout.replicas();
  const int replica = world.rank() / pipe;
  for (int i = 0; i < kSteps; ++i) {
    const Batch whole = BatchOf(model, kBatch, i);
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(PartOf(whole, replica, layout.replicas()), kRate));
    EXPECT_EQ(score.count, whole.targets.numel());
    NamedTensors mine = strategy->Parameters();
    for (auto& each : strategy->Buffers()) mine.push_back(std::move(each));
    for (auto& each : strategy->OptimizerState()) {
      mine.push_back(std::move(each));
    }
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            world.AllGatherString(WeightsSha256(mine)));
    for (int rank = 0; rank < layout.ranks; ++rank) {
      EXPECT_EQ(all[static_cast<size_t>(rank)],
                all[static_cast<size_t>(rank % pipe)])
          << "rank " << rank << " in step " << i;
    }
    if (world.rank() == 0) trial->losses.push_back(score.loss());
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState state, strategy->GatherState());
  if (world.rank() != 0) return absl::OkStatus();
  for (const auto& [name, tensor] : state.parameters) {
    trial->state.parameters.emplace_back(name, tensor.detach().clone());
  }
  trial->state.optimizer = state.optimizer;
  return absl::OkStatus();
}

TEST_P(ReplicasTest, AreAlikeAndTrainAsOneDeviceOnTheWholeBatch) {
  const Layout& layout = GetParam();
  for (const std::string model : {"mlp_small", "gpt_tiny_tied"}) {
    Trial trial;
    const absl::Status status =
        RunThreadRanks(layout.ranks, [&](Communicator& world) {
          return TrainReplica(model, layout, world, &trial);
        });
    ASSERT_TRUE(status.ok()) << status;
    const LayerSpecs specs = Specs(model);
    const auto one = MeshStrategy::Create(
        specs, CrossEntropy, OptionsOf(specs, {"one", "gpipe", 1, 1, 1}, 1),
        nullptr);
    ASSERT_TRUE(one.ok()) << one.status();
    const NamedTensors before = (*one)->Parameters();
    std::vector<at::Tensor> initial;
    for (const auto& each : before) initial.push_back(each.second.clone());
    for (int i = 0; i < kSteps; ++i) {
      const auto score = (*one)->TrainStep(BatchOf(model, kBatch, i), kRate);
      ASSERT_TRUE(score.ok()) << score.status();
      EXPECT_NEAR(trial.losses[static_cast<size_t>(i)], score->loss(), 1e-5);
    }
    std::map<std::string, at::Tensor> found(trial.state.parameters.begin(),
                                            trial.state.parameters.end());
    for (size_t i = 0; i < before.size(); ++i) {
      const auto& [name, tensor] = before[i];
      EXPECT_FALSE(tensor.equal(initial[i])) << name << " did not move";
      ASSERT_EQ(found.count(name), 1u) << name;
      EXPECT_TRUE(found.at(name).allclose(tensor, 1e-4, 1e-6)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ReplicasTest,
    testing::Values(Layout{"Ddp", "1f1b", 2, 1, 1},
                    Layout{"DdpOfThree", "gpipe", 3, 1, 1},
                    Layout{"Pairs", "1f1b", 2, 2, 2},
                    Layout{"OverRanks", "1f1b", 4, 2, 1},
                    Layout{"PairsOverRanks", "gpipe", 4, 4, 2},
                    Layout{"ZeroBubble", "zb_h1", 2, 2, 2},
                    Layout{"VShaped", "zb_v", 2, 2, 2, 2},
                    Layout{"Chunks", "interleaved_1f1b", 4, 2, 1, 2},
                    Layout{"Together", "1f1b", 2, 2, 2, 1, 3},
                    Layout{"OneReplica", "1f1b", 2, 2, 1}),
    [](const auto& info) { return info.param.name; });

// What a job under `reproducible` comes to, on rank 0.
absl::Status TrainReproducibly(const std::string& model, const Layout& layout,
                               int groups, Communicator* world, Trial* trial) {
  constexpr int kMicrobatches = 12;  // of all replicas
  const LayerSpecs specs = Specs(model);
  MeshStrategyOptions options =
      OptionsOf(specs, layout, kMicrobatches / layout.replicas());
  options.reproducible = true;
  options.gradient_groups = groups;
  options.clip_norm = 0.5;
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshStrategy> strategy,
      MeshStrategy::Create(specs, CrossEntropy, options, world));
  const int rank = world == nullptr ? 0 : world->rank();
  const int replica = rank * layout.replicas() / layout.ranks;
  for (int i = 0; i < kSteps; ++i) {
    TANDEM_ASSIGN_OR_RETURN(
        const Score score,
        strategy->TrainStep(
            PartOf(BatchOf(model, kBatch, i), replica, layout.replicas()),
            kRate));
    if (rank == 0) trial->losses.push_back(score.loss_sum);
  }
  TANDEM_ASSIGN_OR_RETURN(const WholeState state, strategy->GatherState());
  if (rank != 0) return absl::OkStatus();
  for (const NamedTensors* part : {&state.parameters, &state.optimizer}) {
    for (const auto& [name, tensor] : *part) {
      trial->state.parameters.emplace_back(name, tensor.detach().clone());
    }
  }
  return absl::OkStatus();
}

Trial Reproduced(const std::string& model, const Layout& layout, int groups) {
  Trial trial;
  const absl::Status status =
      layout.ranks == 1
          ? TrainReproducibly(model, layout, groups, nullptr, &trial)
          : RunThreadRanks(layout.ranks, [&](Communicator& world) {
              return TrainReproducibly(model, layout, groups, &world, &trial);
            });
  EXPECT_TRUE(status.ok()) << status;
  return trial;
}

TEST(ReproducibleTest, EveryLayoutGivesOneDevicesBits) {
  const std::vector<Layout> layouts = {
      {"two replicas", "1f1b", 2, 1, 1},
      {"three replicas", "gpipe", 3, 1, 1},
      {"four replicas", "1f1b", 4, 1, 1},
      {"a pair", "1f1b", 1, 2, 2},
      {"three stages", "gpipe", 3, 3, 1},
      {"zero bubble", "zb_h1", 2, 2, 1},
      {"two pairs", "zb_h1", 2, 2, 2},
      {"three pairs over ranks", "1f1b", 6, 2, 1},
      {"V", "zb_v", 2, 2, 2, 2},
      {"chunks", "interleaved_1f1b", 4, 2, 1, 2},
      {"breadth first", "looped_bfs", 2, 2, 2, 2},
  };
  int compared = 0;
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const int groups : {0, 6}) {
      const Trial one = Reproduced(model, {"one", "1f1b", 1, 1, 1}, groups);
      for (const Layout& layout : layouts) {
        const bool descends = layout.schedule == "gpipe";
        if (groups > 0 && (descends || groups % layout.replicas() != 0)) {
          continue;
        }
        SCOPED_TRACE(absl::StrCat(model, ", ", layout.name, ", ", groups));
        const Trial trial = Reproduced(model, layout, groups);
        EXPECT_EQ(trial.losses, one.losses);
        ExpectClose(trial.state.parameters, one.state.parameters, 0);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 2 * (11 + 8));
}

TEST(ReplicasTest, AFailureOfOneIsTheErrorOfAll) {
  const LayerSpecs specs = Specs("mlp_small");
  std::vector<absl::Status> ends(4);
  const absl::Status status = RunThreadRanks(4, [&](Communicator& world) {
    const auto strategy = MeshStrategy::Create(
        specs, CrossEntropy, OptionsOf(specs, {"", "1f1b", 4, 2, 1}, 4),
        &world);
    if (!strategy.ok()) return strategy.status();
    Batch batch = BatchOf("mlp_small", 12, 0);
    if (world.rank() == 2) batch.inputs = batch.inputs.narrow(1, 0, 3);
    ends[static_cast<size_t>(world.rank())] =
        (*strategy)->TrainStep(batch, kRate).status();
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
