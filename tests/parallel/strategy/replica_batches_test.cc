// Ranks of one replica must have the same batch: where they have not, they are
// told so, and do not wait for each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/testing/statuses.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::replica_batches_test {
namespace {

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
        // Whose messages all go one way is told by the next collective.
        if (mine.ok()) mine = rank.strategy->Sum(Score()).status();
        return absl::OkStatus();
      }));
  // Of 60 s.
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
}  // namespace tandem::replica_batches_test
