// What replicas can do in one corner of the mesh they can do in all: options of
// data parallelism, in layouts of one device a rank, of several that work one
// after the other or at once, and of several ranks.

#include <ATen/Tensor.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "tests/parallel/strategy/example_job.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::mesh_corners_test {
namespace {

// The first is what the others are compared with.
std::vector<LabLayout> Layouts() {
  return LabLayouts(
      "sequential 2x1x1, sequential 2x1x2, 1f1b 2x1x2, gpipe 2x1x2, "
      "1f1b 2x2x1",
      /*microbatches=*/4);
}

bool IsCut(const LabLayout& layout) { return layout.devices_of_replica() > 1; }

// `averaged`: how many parameters are, as replica 0's ranks measured.
absl::StatusOr<LabOutcome> Train(const LabLayout& layout,
                                 const LabChange& change,
                                 double* averaged = nullptr) {
  MeshStrategyOptions changed;
  change(changed);
  LabJob job;
  // Values differ between replicas, unless nobody makes them alike.
  job.specs = [&] {
    const int replica = ThisThreadsRank() / layout.pipe;
    LayerList layers = PlainModel(changed.ddp.init_sync ? 3 + replica : 3);
    layers.insert(layers.begin() + 1, BatchNormLayer("bn", kHidden));
    return SpecsFromLayers(layers);
  };
  job.loss = CrossEntropy;
  job.change = [&](MeshStrategyOptions& options) {
    options.optimizer = SgdOptions{0.9};
    change(options);
  };
  job.batch = [](int step) { return GlobalBatch(step, 16); };
  job.steps = 5;
  absl::Mutex mutex;
  job.end = [&](const LabRank& rank) {
    absl::MutexLock lock(&mutex);
    for (const auto& [name, value] : rank.strategy->Measurements()) {
      if (name != "num_parameter_tensors" || rank.replica > 0) continue;
      if (averaged != nullptr) *averaged += value;
    }
    return absl::OkStatus();
  };
  return TrainInLab(layout, job);
}

// By replica and name.
TensorsByName OfReplicas(const LabLayout& layout, const LabOutcome& outcome) {
  TensorsByName tensors;
  for (size_t rank = 0; rank < outcome.held.size(); ++rank) {
    for (const auto& [name, tensor] : outcome.held[rank]) {
      tensors[absl::StrCat(rank / layout.pipe, " ", name)] = tensor;
    }
  }
  return tensors;
}

struct Technique {
  const char* name;
  LabChange change;
  bool changes_result = false;         // from that of "plain"
  bool excludes_reproducible = false;  // what it does depends on the layout
  int averaged = 6;                    // parameters
};

std::vector<Technique> Techniques() {
  return {
      {"plain", [](auto&) {}},
      {"small buckets", [](auto& o) { o.ddp.bucket_cap_mb = 1e-5; }},
      {"find_unused_parameters",
       [](auto& o) { o.ddp.find_unused_parameters = true; }},
      {"static_graph", [](auto& o) { o.ddp.static_graph = true; }, false, true},
      {"skip_all_reduce_unused_params",
       [](auto& o) {
         o.ddp.find_unused_parameters = true;
         o.ddp.skip_all_reduce_unused_params = true;
       },
       false, true},
      {"delay_all_reduce_named_params",
       [](auto& o) {
         o.ddp.delay_all_reduce_named_params = {"bn.weight", "bn.bias"};
         o.ddp.param_to_hook_all_reduce = "fc1.weight";
       },
       false, true},
      {"parameters_to_ignore",
       [](auto& o) {
         o.ddp.parameters_to_ignore = {"fc1.weight", "bn.running_mean"};
       },
       true, true, 5},
      {"parameters_to_ignore with clip_norm",
       [](auto& o) {
         o.ddp.parameters_to_ignore = {"fc1.weight", "fc2.bias"};
         o.clip_norm = 0.05;
       },
       true, true, 4},
      {"checkpoint_layers",
       [](auto& o) { o.pipeline.selective.layers = "^bn|^fc"; }},
      {"checkpoint_every", [](auto& o) { o.pipeline.selective.every = 2; }},
      {"checkpoint_every with static_graph",
       [](auto& o) {
         o.pipeline.selective.every = 3;
         o.ddp.static_graph = true;
       },
       false, true},
      {"init_sync off", [](auto& o) { o.ddp.init_sync = false; }},
      {"no broadcast_buffers", [](auto& o) { o.ddp.broadcast_buffers = false; },
       true},
      {"fp16", [](auto& o) { o.make_hook = [] { return Fp16CompressHook(); }; },
       true, true},
      {"local SGD",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{2, 1};
       },
       true, true},
      {"local SGD with clip_norm",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{3, 0};
         o.clip_norm = 0.1;
       },
       true, true},
  };
}

TEST(MeshCornersTest, EveryTechniqueGivesTheSameBitsInEveryCorner) {
  int cells = 0;
  for (const Technique& technique : Techniques()) {
    absl::StatusOr<LabOutcome> first;
    TensorsByName expected;
    for (const LabLayout& layout : Layouts()) {
      SCOPED_TRACE(absl::StrCat(technique.name, ", ", layout.name));
      double averaged = 0;
      const absl::StatusOr<LabOutcome> found =
          Train(layout, technique.change, &averaged);
      ASSERT_TRUE(found.ok()) << found.status();
      ++cells;
      EXPECT_EQ(averaged, technique.averaged);
      const TensorsByName tensors = OfReplicas(layout, *found);
      if (!IsCut(layout)) {
        first = found;
        expected = tensors;
        continue;
      }
      ExpectSameBits(found, first);
      ExpectSameBits(tensors, expected);
    }
  }
  RecordProperty("cells", cells);
  EXPECT_EQ(cells, 16 * 5);
}

// Bit for bit, in every corner, running statistics included; and whole stages
// may be computed again as well.
TEST(MeshCornersTest, CheckpointedLayersChangeNothing) {
  for (const LabLayout& layout : Layouts()) {
    const absl::StatusOr<LabOutcome> plain = Train(layout, [](auto&) {});
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const SelectiveCheckpointing& selective :
         {SelectiveCheckpointing{"bn", 0}, SelectiveCheckpointing{"", 1},
          SelectiveCheckpointing{"", 2}, SelectiveCheckpointing{"", 9}}) {
      for (const auto stages : {ActivationCheckpointing::kNever,
                                ActivationCheckpointing::kExceptLast}) {
        SCOPED_TRACE(absl::StrCat(layout.name, " ", selective.layers, " ",
                                  selective.every));
        const absl::StatusOr<LabOutcome> found = Train(layout, [&](auto& o) {
          o.pipeline.selective = selective;
          o.pipeline.checkpointing = stages;
        });
        ExpectSameBits(found, plain);
        ExpectSameBits(OfReplicas(layout, *found), OfReplicas(layout, *plain));
      }
    }
  }
}

// What the techniques are for shows: without this the test above could compare
// one plain training with itself.
TEST(MeshCornersTest, TechniquesThatChangeTheResultDo) {
  const LabLayout layout = Layouts()[2];
  const absl::StatusOr<LabOutcome> plain = Train(layout, [](auto&) {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  const TensorsByName expected = OfReplicas(layout, *plain);
  for (const Technique& technique : Techniques()) {
    if (!technique.changes_result) continue;
    const absl::StatusOr<LabOutcome> found = Train(layout, technique.change);
    ASSERT_TRUE(found.ok()) << found.status();
    bool differs = false;
    for (const auto& [key, tensor] : OfReplicas(layout, *found)) {
      differs = differs || !tensor.equal(expected.at(key));
    }
    EXPECT_TRUE(differs) << technique.name;
  }
}

TEST(MeshCornersTest, WhatTheModelHasNotIsRefused) {
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    ExpectRefusals(
        [&](const LabChange& change) { return Train(layout, change).status(); },
        {{[](auto& o) { o.pipeline.selective.layers = "conv"; },
          "checkpoint_layers=conv matches no layer of the model"},
         {[](auto& o) { o.ddp.parameters_to_ignore = {"fc9.weight"}; },
          "fc9.weight"},
         {[](auto& o) { o.ddp.delay_all_reduce_named_params = {"fc2.bias"}; },
          "need each other"},
         {[](auto& o) {
            o.ddp.parameters_to_ignore = {"fc1.weight", "fc1.bias",
                                          "bn.weight",  "bn.bias",
                                          "fc2.weight", "fc2.bias"};
          },
          "nothing to train together"}});
  }
}

TEST(MeshCornersTest, WhatWaitsForAnotherStageIsRefused) {
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    const absl::Status status =
        Train(layout, [](auto& o) {
          o.ddp.delay_all_reduce_named_params = {"fc2.bias"};
          o.ddp.param_to_hook_all_reduce = "fc1.weight";
        }).status();
    if (IsCut(layout)) {
      EXPECT_THAT(status, Says("fc2.bias, which is in stage 1"));
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST(MeshCornersTest, ReproducibleRefusesWhatDependsOnTheLayout) {
  for (const Technique& technique : Techniques()) {
    if (!technique.excludes_reproducible) continue;
    EXPECT_THAT(Train(Layouts()[2],
                      [&](auto& o) {
                        technique.change(o);
                        o.reproducible = true;
                      })
                    .status(),
                Says("reproducible"))
        << technique.name;
  }
}

// Replicas of a model, in one piece or cut. That a reproducible step does not
// show the layout the table of techniques says (technique_layouts_test.cc).

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
    const auto expected = TrainInLab(LabLayoutNamed("gpipe 1x1x1", 1), on_one);
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
}  // namespace tandem::mesh_corners_test
