// What replicas can do in one corner of the mesh they can do in all: options of
// data parallelism, in layouts of one device a rank, of several that work one
// after the other or at once, and of several ranks.

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/testing/thread_ranks.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/sequential.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/example_job.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr int kReplicas = 2;
constexpr int kMicrobatches = 2;
constexpr int kSteps = 5;

struct Layout {
  const char* name;
  const char* schedule;
  int pipe;
  int devices;  // of a rank

  int ranks() const { return kReplicas * pipe; }
  bool cut() const { return pipe * devices > 1; }
};

// The first is what the others are compared with.
std::vector<Layout> Layouts() {
  return {{"one device", "sequential", 1, 1},
          {"one after the other", "sequential", 1, 2},
          {"at once", "1f1b", 1, 2},
          {"gpipe", "gpipe", 1, 2},
          {"over ranks", "1f1b", 2, 1}};
}

// Values differ between ranks until they are made alike.
LayerSpecs Specs(uint64_t seed) {
  LayerList layers = PlainModel(seed);
  layers.insert(layers.begin() + 1, BatchNormLayer("bn", kHidden));
  return SpecsOf(layers);
}

absl::StatusOr<MeshStrategyOptions> OptionsOf(const Layout& layout) {
  MeshStrategyOptions options;
  const int devices = layout.pipe * layout.devices;
  if (layout.schedule == kSequential) {
    TANDEM_ASSIGN_OR_RETURN(options.schedule,
                            SequentialSchedule(devices, kMicrobatches));
  } else {
    TANDEM_ASSIGN_OR_RETURN(
        options.schedule,
        MakeSchedule(layout.schedule, {devices, 1, kMicrobatches}));
  }
  if (layout.cut()) options.cuts = {2};
  options.devices.assign(static_cast<size_t>(layout.devices), c10::kCPU);
  options.optimizer = SgdOptions{0.9};
  return options;
}

// By replica and name, after all steps; and what each step's score was.
struct Outcome {
  std::map<std::string, at::Tensor> tensors;
  std::vector<double> losses;
  double parameters_averaged = 0;  // of replica 0, as its ranks measured
};

using Change = std::function<void(MeshStrategyOptions&)>;

absl::StatusOr<Outcome> Train(const Layout& layout, const Change& change) {
  Outcome outcome;
  absl::Mutex mutex;
  TANDEM_RETURN_IF_ERROR(
      RunThreadRanks(layout.ranks(), [&](Communicator& world) -> absl::Status {
        const int replica = world.rank() / layout.pipe;
        TANDEM_ASSIGN_OR_RETURN(MeshStrategyOptions options, OptionsOf(layout));
        change(options);
        const uint64_t seed = options.ddp.init_sync ? 3 + replica : 3;
        TANDEM_ASSIGN_OR_RETURN(
            const auto strategy,
            MeshStrategy::Create(Specs(seed), CrossEntropy, options, &world));
        for (int step = 0; step < kSteps; ++step) {
          Batch batch = GlobalBatch(step, 8 * kReplicas);
          batch = {batch.inputs.narrow(0, 8 * replica, 8),
                   batch.targets.narrow(0, 8 * replica, 8), 8};
          TANDEM_ASSIGN_OR_RETURN(const Score score,
                                  strategy->TrainStep(batch, 0.1));
          if (world.rank() == 0) outcome.losses.push_back(score.loss());
        }
        absl::MutexLock lock(&mutex);
        for (const NamedTensors& part :
             {strategy->Parameters(), strategy->Buffers(),
              strategy->OptimizerState()}) {
          for (const auto& [name, tensor] : part) {
            outcome.tensors[absl::StrCat(replica, " ", name)] =
                tensor.detach().clone();
          }
        }
        for (const auto& [name, value] : strategy->Measurements()) {
          if (name != "num_parameter_tensors" || replica > 0) continue;
          outcome.parameters_averaged += value;
        }
        return absl::OkStatus();
      }));
  return outcome;
}

struct Technique {
  const char* name;
  Change change;
  int averaged = 6;  // parameters
};

std::vector<Technique> Techniques() {
  return {
      {"plain", [](auto&) {}},
      {"small buckets", [](auto& o) { o.ddp.bucket_cap_mb = 1e-5; }},
      {"find_unused_parameters",
       [](auto& o) { o.ddp.find_unused_parameters = true; }},
      {"static_graph", [](auto& o) { o.ddp.static_graph = true; }},
      {"skip_all_reduce_unused_params",
       [](auto& o) {
         o.ddp.find_unused_parameters = true;
         o.ddp.skip_all_reduce_unused_params = true;
       }},
      {"delay_all_reduce_named_params",
       [](auto& o) {
         o.ddp.delay_all_reduce_named_params = {"bn.weight", "bn.bias"};
         o.ddp.param_to_hook_all_reduce = "fc1.weight";
       }},
      {"parameters_to_ignore",
       [](auto& o) {
         o.ddp.parameters_to_ignore = {"fc1.weight", "bn.running_mean"};
       },
       5},
      {"parameters_to_ignore with clip_norm",
       [](auto& o) {
         o.ddp.parameters_to_ignore = {"fc1.weight", "fc2.bias"};
         o.clip_norm = 0.05;
       },
       4},
      {"init_sync off", [](auto& o) { o.ddp.init_sync = false; }},
      {"no broadcast_buffers",
       [](auto& o) { o.ddp.broadcast_buffers = false; }},
      {"fp16",
       [](auto& o) { o.make_hook = [] { return Fp16CompressHook(); }; }},
      {"local SGD",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{2, 1};
       }},
      {"local SGD with clip_norm",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{3, 0};
         o.clip_norm = 0.1;
       }},
  };
}

TEST(MeshCornersTest, EveryTechniqueGivesTheSameBitsInEveryCorner) {
  int cells = 0;
  for (const Technique& technique : Techniques()) {
    absl::StatusOr<Outcome> first;
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(absl::StrCat(technique.name, ", ", layout.name));
      const absl::StatusOr<Outcome> found = Train(layout, technique.change);
      ASSERT_TRUE(found.ok()) << found.status();
      ++cells;
      EXPECT_EQ(found->parameters_averaged, technique.averaged);
      if (!layout.cut()) {
        first = found;
        continue;
      }
      EXPECT_EQ(found->losses, first->losses);
      ASSERT_EQ(found->tensors.size(), first->tensors.size());
      for (const auto& [name, tensor] : found->tensors) {
        EXPECT_TRUE(tensor.equal(first->tensors.at(name))) << name;
      }
    }
  }
  RecordProperty("cells", cells);
  EXPECT_EQ(cells, 13 * 5);
}

// What the techniques are for shows: without this the test above could compare
// one plain training with itself.
TEST(MeshCornersTest, TechniquesThatChangeTheResultDo) {
  const Layout layout = Layouts()[2];
  const absl::StatusOr<Outcome> plain = Train(layout, [](auto&) {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const Technique& technique : Techniques()) {
    const std::string name = technique.name;
    const bool changes = name.find("ignore") != std::string::npos ||
                         name.find("local") == 0 || name == "fp16" ||
                         name == "no broadcast_buffers";
    if (!changes) continue;
    const absl::StatusOr<Outcome> found = Train(layout, technique.change);
    ASSERT_TRUE(found.ok()) << found.status();
    bool differs = false;
    for (const auto& [key, tensor] : found->tensors) {
      differs = differs || !tensor.equal(plain->tensors.at(key));
    }
    EXPECT_TRUE(differs) << name;
  }
}

std::string Refusal(const Layout& layout, const Change& change) {
  return std::string(Train(layout, change).status().message());
}

TEST(MeshCornersTest, NamesThatNoStageHasAreRefused) {
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    EXPECT_THAT(
        Refusal(layout,
                [](auto& o) { o.ddp.parameters_to_ignore = {"fc9.weight"}; }),
        HasSubstr("fc9.weight"));
    EXPECT_THAT(Refusal(layout,
                        [](auto& o) {
                          o.ddp.delay_all_reduce_named_params = {"fc2.bias"};
                        }),
                HasSubstr("need each other"));
  }
}

TEST(MeshCornersTest, WhatWaitsForAnotherStageIsRefused) {
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    const std::string said = Refusal(layout, [](auto& o) {
      o.ddp.delay_all_reduce_named_params = {"fc2.bias"};
      o.ddp.param_to_hook_all_reduce = "fc1.weight";
    });
    if (layout.cut()) {
      EXPECT_THAT(said, HasSubstr("fc2.bias, which is in stage 1"));
    } else {
      EXPECT_EQ(said, "");
    }
  }
}

TEST(MeshCornersTest, ReproducibleRefusesWhatDependsOnTheLayout) {
  for (const Technique& technique : Techniques()) {
    const std::string name = technique.name;
    const bool depends = name == "static_graph" || name == "fp16" ||
                         name.find("skip") == 0 || name.find("delay") == 0 ||
                         name.find("ignore") != std::string::npos ||
                         name.find("local") == 0;
    if (!depends) continue;
    EXPECT_THAT(Refusal(Layouts()[2],
                        [&](auto& o) {
                          technique.change(o);
                          o.reproducible = true;
                        }),
                HasSubstr("reproducible"))
        << name;
  }
}

}  // namespace
}  // namespace tandem
