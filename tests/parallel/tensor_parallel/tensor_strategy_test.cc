// Layers that ranks share, in a mesh with replicas and pipelines: what one
// device comes to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"
#include "models/tensor_parallel_loss.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/core/testing/recorded_flights.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::tensor_strategy_test {
namespace {

constexpr int64_t kClasses = 256;  // of gpt_tiny

LabJob Job(const LabChange& change, int steps = 3) {
  LabJob job = ModelJob("gpt_tiny", /*size=*/24, steps,
                        [=](MeshStrategyOptions& options) {
                          AdamWOptions adamw;
                          adamw.eps = 1e-2;  // what is nearly 0 decides nothing
                          options.optimizer = adamw;
                          options.clip_norm = 0.5;
                          options.shard_min_num_params = 1;
                          change(options);
                        });
  TensorParallelLossOptions loss;
  loss.classes = kClasses;
  job.loss = TensorParallelCrossEntropy(loss);
  job.test = 7;
  return job;
}

struct Mesh {
  std::string layout;
  int tensor;
  Sharding sharding;
  bool sequence_parallel;
};

// Meshes of 2, 4, 6 and 8 ranks.
std::vector<Mesh> Meshes() {
  std::vector<Mesh> meshes;
  for (const bool sequence : {true, false}) {
    for (const auto& [layout, tensor] :
         std::vector<std::pair<std::string, int>>{{"1f1b 1x1x1", 2},
                                                  {"1f1b 2x1x1", 2},
                                                  {"zb_h1 1x2x1", 2},
                                                  {"1f1b 3x1x1", 2},
                                                  {"gpipe 2x2x1", 2},
                                                  {"1f1b 2x1x1", 4},
                                                  {"1f1b 1x1x2", 2}}) {
      for (const Sharding sharding :
           {Sharding::kOff, Sharding::kOptimizer, Sharding::kParameters}) {
        if (sharding != Sharding::kOff &&
            layout.find(" 1x") != std::string::npos)
          continue;
        // Samples have 6 tokens.
        if (sequence && tensor == 4) continue;
        meshes.push_back({layout, tensor, sharding, sequence});
      }
    }
  }
  return meshes;
}

void ExpectTrainsWhatOneDeviceTrains(bool sequence_parallel, int expected) {
  const auto alone = TrainInLab(LabLayoutNamed("1f1b 1x1x1"),
                                Job([](MeshStrategyOptions&) {}));
  ASSERT_TRUE(alone.ok()) << alone.status();
  int meshes = 0;
  for (const Mesh& mesh : Meshes()) {
    if (mesh.sequence_parallel != sequence_parallel) continue;
    SCOPED_TRACE(absl::StrCat(mesh.layout, " tensor ", mesh.tensor,
                              " sharding ", static_cast<int>(mesh.sharding),
                              " sequence ", mesh.sequence_parallel));
    LabLayout layout = LabLayoutNamed(mesh.layout);
    layout.tensor = mesh.tensor;
    ExpectClose(TrainInLab(layout, Job([&](MeshStrategyOptions& options) {
                             options.shard = mesh.sharding;
                             options.sequence_parallel = mesh.sequence_parallel;
                           })),
                alone);
    ++meshes;
  }
  EXPECT_EQ(meshes, expected);
}

TEST(TensorStrategyTest, TrainsWhatOneDeviceTrains) {
  ExpectTrainsWhatOneDeviceTrains(/*sequence_parallel=*/true, /*expected=*/12);
}

TEST(TensorStrategyTest, TrainsWhatOneDeviceTrainsWithWholeTokens) {
  ExpectTrainsWhatOneDeviceTrains(/*sequence_parallel=*/false, /*expected=*/15);
}

// What some ranks share, others go on from, in another mesh.
TEST(TensorStrategyTest, GoesOnInAnotherMesh) {
  const auto job = [](int first, int steps) {
    LabJob made = Job(
        [](MeshStrategyOptions& options) { options.sequence_parallel = false; },
        steps);
    made.batch = [first, inner = made.batch](int step) {
      return inner(first + step);
    };
    made.test = -1;
    return made;
  };
  const auto whole = TrainInLab(LabLayoutNamed("1f1b 1x1x1"), job(0, 6));
  ASSERT_TRUE(whole.ok()) << whole.status();
  int resumed = 0;
  const std::vector<std::pair<std::string, int>> meshes = {
      {"1f1b 1x1x1", 1}, {"1f1b 1x1x1", 2}, {"zb_h1 1x2x1", 4}};
  for (const auto& [before, before_tensor] : meshes) {
    LabLayout first_layout = LabLayoutNamed(before);
    first_layout.tensor = before_tensor;
    const auto first = TrainInLab(first_layout, job(0, 3));
    ASSERT_TRUE(first.ok()) << first.status();
    for (const auto& [after, after_tensor] : meshes) {
      SCOPED_TRACE(absl::StrCat(before, " ", before_tensor, ", then ", after,
                                " ", after_tensor));
      LabLayout layout = LabLayoutNamed(after);
      layout.tensor = after_tensor;
      LabJob then = job(3, 3);
      then.begin = [&](const LabRank& rank) {
        return Resume(*rank.strategy, *first, 3);
      };
      const auto found = TrainInLab(layout, then);
      ASSERT_TRUE(found.ok()) << found.status();
      for (const auto& [name, tensor] : whole->model) {
        EXPECT_TRUE(found->model.at(name).allclose(tensor, 1e-4, 1e-6)) << name;
      }
      ++resumed;
    }
  }
  EXPECT_EQ(resumed, 9);
}

TEST(TensorStrategyTest, RefusesWhatDoesNotFitByName) {
  const auto refusal = [](int tensor, const LabChange& change) {
    LabLayout layout = LabLayoutNamed("1f1b 1x1x1");
    layout.tensor = tensor;
    return TrainInLab(layout, Job(change)).status();
  };
  EXPECT_THAT(
      refusal(2, [](auto& o) { o.reproducible = true; }),
      InvalidArgument("tensor parallelism excludes reproducible, for sums"));
  EXPECT_THAT(refusal(2, [](auto& o) { o.optimizer = MuonOptions(); }),
              InvalidArgument("Muon, which steps whole matrices"));
  // 4 heads over 3 ranks.
  EXPECT_THAT(refusal(3, [](auto&) {}), InvalidArgument("heads"));
  EXPECT_THAT(refusal(4, [](auto&) {}),
              InvalidArgument("samples of 6 tokens", "over 4 ranks"));
  EXPECT_THAT(refusal(2, [](auto& o) { o.tensor = 0; }),
              InvalidArgument("tensor is 0"));
}

// A hang says so: whose activations, forward and backward, ranks wait for.
TEST(TensorStrategyTest, TheFlightRecordSaysWhatEachCollectiveIsFor) {
  std::vector<std::string> enter = {"lm_head"};
  std::vector<std::string> leave = {"transformer.wte"};
  for (int i = 0; i < 4; ++i) {
    const std::string block = absl::StrCat("transformer.h.", i);
    enter.insert(enter.end(), {block + ".attn.c_attn", block + ".mlp.c_fc"});
    leave.insert(leave.end(), {block + ".attn.c_proj", block + ".mlp.c_proj"});
  }
  for (const bool sequence_parallel : {false, true}) {
    std::set<std::string> expected = {"losses of parts of the vocabulary"};
    for (const std::string& each : enter) {
      const std::string what = "activations that go into " + each;
      expected.insert("gradient of " + what);
      if (sequence_parallel) expected.insert(what);
    }
    for (const std::string& each : leave) {
      const std::string what = "activations that come out of " + each;
      expected.insert(what);
      if (sequence_parallel) expected.insert("gradient of " + what);
    }
    LabLayout layout = LabLayoutNamed("1f1b 2x1x1");
    layout.tensor = 2;
    const auto job = Job(
        [&](MeshStrategyOptions& options) {
          options.sequence_parallel = sequence_parallel;
        },
        /*steps=*/1);
    auto purposes = PurposesByGroup(RecordedFlights([&] {
      const auto trained = TrainInLab(layout, job);
      EXPECT_TRUE(trained.ok()) << trained.status();
    }));
    EXPECT_EQ(purposes["parts of layers of stage 0"], expected);
    // LayerNorm's, of each rank's own tokens.
    std::set<std::string> summed;
    if (sequence_parallel) {
      summed = {"gradients of what ranks with parts of a layer share"};
    }
    EXPECT_EQ(purposes["parts of gradients of stage 0"], summed);
  }
}

// Ranks that would all compute the same.
TEST(TensorStrategyTest, RefusesAModelThatItDoesNotDivide) {
  LabLayout layout = LabLayoutNamed("1f1b 1x1x1");
  layout.tensor = 2;
  const auto refused =
      TrainInLab(layout, ModelJob("mlp_small", /*size=*/8, /*steps=*/1,
                                  [](MeshStrategyOptions& options) {
                                    options.sequence_parallel = false;
                                  }));
  EXPECT_THAT(refused.status(),
              InvalidArgument("over 2 ranks divides no parameter"));
}

}  // namespace
}  // namespace tandem::tensor_strategy_test
