// Replicas of a model, in one piece or cut. That a reproducible step does not
// show the layout the table of techniques says (technique_layouts_test.cc).

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/testing/statuses.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::mesh_replicas_test {
namespace {

constexpr int64_t kBatch = 24;  // of all replicas

class MeshReplicasTest : public testing::TestWithParam<LabLayout> {};

LabJob ReplicasJob(const std::string& model) {
  return ModelJob(model, kBatch, 3, [](MeshStrategyOptions& options) {
    options.ddp.bucket_cap_mb = 1.0 / 1024;  // several buckets
  });
}

// Replicas of a part of the model must have the same bits after every step.
absl::StatusOr<Score> StepAlike(const LabLayout& layout, const LabRank& rank,
                                const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          rank.strategy->TrainStep(batch, kLabRate));
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

TEST_P(MeshReplicasTest, AreAlikeAndTrainAsOneDeviceOnTheWholeBatch) {
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
    LabLayout one = {"one", "gpipe"};
    one.microbatches = 1;
    const auto expected = TrainInLab(one, on_one);
    ExpectClose(TrainInLab(layout, job), expected);
    for (const auto& [name, tensor] : initial) {
      EXPECT_FALSE(expected->model.at(name).equal(tensor))
          << name << " did not move";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MeshReplicasTest,
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

TEST(MeshReplicasTest, AFailureOfOneIsTheErrorOfAll) {
  std::vector<absl::Status> ends(4);
  const absl::Status status =
      OnLabRanks({"pairs", "1f1b", 2, 2, 1, 1, 8}, ModelJob("mlp_small", 12, 1),
                 [&](const LabRank& rank) {
                   Batch batch = LabBatch("mlp_small", 12, kLabSeed, 0);
                   if (rank.rank == 2)
                     batch.inputs = batch.inputs.narrow(1, 0, 3);
                   ends[static_cast<size_t>(rank.rank)] =
                       rank.strategy->TrainStep(batch, kLabRate).status();
                   return absl::OkStatus();
                 });
  ASSERT_TRUE(status.ok()) << status;
  for (int rank = 0; rank < 4; ++rank) {
    const absl::Status& end = ends[static_cast<size_t>(rank)];
    EXPECT_FALSE(end.ok()) << rank;
    EXPECT_THAT(end, Says("layer fc1")) << rank;
  }
}

}  // namespace
}  // namespace tandem::mesh_replicas_test
