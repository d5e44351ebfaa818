#include "parallel/strategy/replicated.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "tests/parallel/strategy/example_job.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::replicated_test {
namespace {

absl::Status ExpectSameOnAllRanks(const Strategy& strategy, int step,
                                  Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(Fingerprint(strategy)));
  for (int rank = 0; rank < world.size(); ++rank) {
    if (all[rank] != all[0]) {
      return absl::InternalError(
          absl::StrCat("rank ", rank, " differs after step ", step));
    }
  }
  return absl::OkStatus();
}

OptimizerOptions Momentum() {
  SgdOptions options;
  options.momentum = 0.9;
  options.weight_decay = 0.01;
  return options;
}

class ReplicasTest : public DeviceTypesAnd<std::tuple<int, OptimizerOptions>> {
};

// Ranks start from different values, have running statistics, and use a part of
// the model at some steps on some ranks only.
TEST_P(ReplicasTest, HoldTheSameBitsAfterEveryStep) {
  const auto [ranks, optimizer] = value();
  ReplicatedOptions options;
  options.optimizer = optimizer;
  options.clip_norm = 1;
  options.ddp.find_unused_parameters = true;
  ExpectOk(RunDeviceRanks(ranks, [&](Communicator& world) {
    int step = 0;
    LayerList layers = PlainModel(10 * world.rank());
    layers.insert(layers.begin() + 1, BatchNormLayer("bn", 7));
    layers.insert(layers.begin() + 2,
                  BranchLayer("branch", 7, world.rank(), [&] {
                    return step % 3 == 1 && world.rank() == world.size() - 1;
                  }));
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(std::move(layers), options, world));
    TANDEM_RETURN_IF_ERROR(ExpectSameOnAllRanks(*strategy, -1, world));
    for (; step < 5; ++step) {
      const Batch batch = GlobalBatch(step, 4 * world.size());
      TANDEM_RETURN_IF_ERROR(
          strategy->TrainStep(Share(batch, world), 0.1).status());
      TANDEM_RETURN_IF_ERROR(ExpectSameOnAllRanks(*strategy, step, world));
    }
    return absl::OkStatus();
  }));
}

TEST_P(ReplicasTest, EqualOneProcessThatHasTheWholeBatch) {
  const auto [ranks, optimizer] = value();
  ReplicatedOptions options;
  options.optimizer = optimizer;
  // By rank count: the job alone first, then in replicas.
  std::vector<NamedTensors> parameters;
  std::vector<Score> scores;
  for (int n : {1, ranks}) {
    const absl::Status status = RunDeviceRanks(n, [&,
                                                   n = n](Communicator& world) {
      TANDEM_ASSIGN_OR_RETURN(auto strategy,
                              NewReplicated(PlainModel(3), options, world));
      EXPECT_EQ(strategy->name(), n == 1 ? "single" : "ddp");
      Score sum;
      for (int step = 0; step < 6; ++step) {
        const Batch batch = GlobalBatch(step, 3 * std::get<0>(value()));
        TANDEM_ASSIGN_OR_RETURN(const Score score,
                                strategy->TrainStep(Share(batch, world), 0.05));
        EXPECT_EQ(score.count, batch.size);
        sum += score;
      }
      if (world.rank() == 0) {
        parameters.push_back(strategy->Parameters());
        scores.push_back(sum);
      }
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status;
  }
  for (size_t i = 0; i < parameters[0].size(); ++i) {
    EXPECT_TRUE(at::allclose(parameters[1][i].second, parameters[0][i].second,
                             /*rtol=*/1e-4, /*atol=*/1e-5))
        << parameters[0][i].first;
  }
  EXPECT_NEAR(scores[1].loss(), scores[0].loss(), 1e-5);
  EXPECT_EQ(scores[1].correct, scores[0].correct);
}

TANDEM_ON_DEVICE_TYPES_AND(
    ReplicasTest,
    testing::Combine(testing::Values(1, 2, 3, 7),
                     testing::Values(Momentum(), OptimizerOptions(AdamWOptions{
                                                     0.9, 0.99, 1e-3, 0.1}))));

class ReplicatedTest : public DeviceTypeTest {};

// DistributedDataParallel with find_unused_parameters does the same.
TEST_P(ReplicatedTest, ParameterUsedOnNoRankIsLeftAloneOnOneRankIsStepped) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) {
    int user = 2;  // nobody
    LayerList layers = PlainModel(3);
    layers.insert(layers.begin() + 1, BranchLayer("branch", 7, 9, [&] {
                    return world.rank() == user;
                  }));
    ReplicatedOptions options;
    options.optimizer = Momentum();
    options.ddp.find_unused_parameters = true;
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(std::move(layers), options, world));
    const at::Tensor live = Find(strategy->Parameters(), "branch.weight");
    const at::Tensor before = live.detach().clone();
    const Batch batch = Share(GlobalBatch(0, 8), world);
    TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.1).status());
    EXPECT_TRUE(live.equal(before));
    EXPECT_EQ(strategy->OptimizerState().size(), 4u);  // two linear layers
    user = 1;
    TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.1).status());
    EXPECT_FALSE(live.equal(before));
    EXPECT_EQ(strategy->OptimizerState().size(), 6u);
    return ExpectSameOnAllRanks(*strategy, 1, world);
  }));
}

TEST_P(ReplicatedTest, LossThatIsNoNumberIsReportedOnEveryRank) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) {
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(PlainModel(3), {}, world));
    Batch batch = Share(GlobalBatch(0, 8), world);
    if (world.rank() == 1) batch.inputs.fill_(std::nan(""));
    TANDEM_ASSIGN_OR_RETURN(const Score score, strategy->TrainStep(batch, 0.1));
    EXPECT_TRUE(std::isnan(score.loss()));
    EXPECT_EQ(score.count, 8);
    return absl::OkStatus();
  }));
}

TEST_P(ReplicatedTest, EvaluationChangesNothingAndIsSummed) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) {
    LayerList layers = PlainModel(3);
    layers.insert(layers.begin() + 1, BatchNormLayer("bn", 7));
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(std::move(layers), {}, world));
    const std::string before = Fingerprint(*strategy);
    // Rank 0 has none, rank 1 one batch, rank 2 two.
    Score mine;
    for (int i = 0; i < world.rank(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(const Score score,
                              strategy->Evaluate(GlobalBatch(i, 5)));
      mine += score;
    }
    TANDEM_ASSIGN_OR_RETURN(const Score none, strategy->Evaluate(Batch{}));
    EXPECT_EQ(none.count, 0);
    TANDEM_ASSIGN_OR_RETURN(const Score all, strategy->Sum(mine));
    EXPECT_EQ(all.count, 15);
    EXPECT_EQ(Fingerprint(*strategy), before);
    return absl::OkStatus();
  }));
}

TEST_P(ReplicatedTest, GoesOnFromSavedStateWithTheSameBits) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) {
    const auto make = [&](uint64_t seed) {
      LayerList layers = PlainModel(seed);
      layers.insert(layers.begin() + 1, BatchNormLayer("bn", 7));
      ReplicatedOptions options;
      options.optimizer = AdamOptions{};
      return NewReplicated(std::move(layers), options, world);
    };
    TANDEM_ASSIGN_OR_RETURN(auto first, make(3));
    NamedTensors model;
    NamedTensors optimizer;
    for (int step = 0; step < 6; ++step) {
      if (step == 3) {
        model = DetachedCopies(first->Parameters());
        for (const auto& each : DetachedCopies(first->Buffers())) {
          model.push_back(each);
        }
        optimizer = DetachedCopies(first->OptimizerState());
      }
      const Batch batch = Share(GlobalBatch(step, 8), world);
      TANDEM_RETURN_IF_ERROR(first->TrainStep(batch, 0.1).status());
    }
    TANDEM_ASSIGN_OR_RETURN(auto second, make(50));
    TANDEM_RETURN_IF_ERROR(second->LoadModelState(model));
    TANDEM_RETURN_IF_ERROR(second->LoadOptimizerState(optimizer));
    for (int step = 3; step < 6; ++step) {
      const Batch batch = Share(GlobalBatch(step, 8), world);
      TANDEM_RETURN_IF_ERROR(second->TrainStep(batch, 0.1).status());
    }
    EXPECT_EQ(Fingerprint(*second), Fingerprint(*first));
    return absl::OkStatus();
  }));
}

TEST_P(ReplicatedTest, ClipsWhatTheOptimizerSees) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) {
    ReplicatedOptions options;
    options.clip_norm = 0.01;
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(PlainModel(3), options, world));
    const at::Tensor live = Find(strategy->Parameters(), "fc2.weight");
    const at::Tensor before = live.detach().clone();
    TANDEM_RETURN_IF_ERROR(strategy->TrainStep(GlobalBatch(0, 8), 1).status());
    const double moved =
        at::linalg_vector_norm(live.detach().sub(before)).item<double>();
    EXPECT_GT(moved, 0);
    EXPECT_LE(moved, 0.0101);
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES(ReplicatedTest);

// Ranks of one replica must have the same batch: where they have not, they are
// told so, and do not wait for each other.

constexpr int64_t kBatch = 8;

LabLayout TwoRanks(const std::string& backend, int replicas) {
  LabLayout layout = LabPipeline(2, 2, 4 * replicas);
  layout.replicas = replicas;
  layout.backend = backend;
  return layout;
}

Batch BatchOf(int64_t size) { return LabBatch("mlp_small", size, kLabSeed, 0); }

// What both ranks of the last replica are told, each with the batch that
// `batch_of` gives it.
void ExpectTold(const LabLayout& layout,
                const std::function<Batch(int rank)>& batch_of, bool trains,
                const std::string& expected) {
  std::vector<absl::Status> said(static_cast<size_t>(layout.ranks()));
  const absl::Time begun = absl::Now();
  ExpectOk(OnLabRanks(
      layout, ModelJob("mlp_small", kBatch, 1), [&](const LabRank& rank) {
        const Batch batch = batch_of(rank.rank);
        absl::Status& mine = said[static_cast<size_t>(rank.rank)];
        mine = trains ? rank.strategy->TrainStep(batch, kLabRate).status()
                      : rank.strategy->Evaluate(batch).status();
        // A rank whose messages all go one way is told by the next collective.
        if (mine.ok()) mine = rank.strategy->Sum(Score()).status();
        return absl::OkStatus();
      }));
  // The limit is 60 s.
  EXPECT_LT(absl::Now() - begun, absl::Seconds(30));
  for (int rank = layout.ranks() - 2; rank < layout.ranks(); ++rank) {
    EXPECT_THAT(said[static_cast<size_t>(rank)], Says(expected)) << rank;
  }
}

// `last` has another size.
std::function<Batch(int rank)> WithSizeOf(int last, int64_t size) {
  return [=](int rank) { return BatchOf(rank == last ? size : kBatch); };
}

// Some of them are cut into microbatches of the same sizes as far as they go.
TEST(ReplicaBatchesTest, OtherSizesAreToldWithTheRanks) {
  for (const char* backend : {"gloo", "shm"}) {
    for (const int64_t size : {4, 5, 6, 7, 9, 12}) {
      SCOPED_TRACE(absl::StrCat(backend, " ", size));
      ExpectTold(TwoRanks(backend, 1), WithSizeOf(1, size), /*trains=*/true,
                 absl::StrCat("ranks 0 and 1 of one replica have batches of 8 "
                              "and ",
                              size, " samples: give them the same"));
    }
  }
}

TEST(ReplicaBatchesTest, SoTheyAreInEvaluationAndInOneOfSeveralReplicas) {
  ExpectTold(TwoRanks("shm", 1), WithSizeOf(1, 6), /*trains=*/false,
             "ranks 0 and 1 of one replica have batches of 8 and 6 samples");
  ExpectTold(TwoRanks("shm", 2), WithSizeOf(3, 6), /*trains=*/true,
             "ranks 2 and 3 of one replica have batches of 8 and 6 samples");
}

// A sampler by rank, as one knows it from data parallelism.
TEST(ReplicaBatchesTest, OtherSamplesAreTold) {
  const auto by_rank = [](int rank) {
    Batch batch = BatchOf(kBatch);
    batch.identity = static_cast<uint64_t>(rank) + 1;
    return batch;
  };
  for (const bool trains : {true, false}) {
    ExpectTold(TwoRanks("shm", 1), by_rank, trains,
               "ranks 0 and 1 of one replica have batches of other samples");
  }
}

TEST(ReplicaBatchesTest, WhatOneDoesNotKnowIsNotCompared) {
  LabJob job = ModelJob("mlp_small", kBatch, 2);
  job.step = [](const LabRank& rank, Batch batch, int) {
    batch.identity = rank.rank == 0 ? 7 : 0;
    return rank.strategy->TrainStep(batch, kLabRate);
  };
  const auto found = TrainInLab(TwoRanks("shm", 1), job);
  EXPECT_TRUE(found.ok()) << found.status();
}

}  // namespace
}  // namespace tandem::replicated_test
