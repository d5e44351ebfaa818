// The mesh strategy: what fails, and what is refused.

#include <ATen/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/instrument/fault_point.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/core/testing/test_files.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::mesh_strategy_errors_test {
namespace {

constexpr int64_t kBatch = 12;

// Two stages and microbatches.
MeshStrategyOptions OptionsOf(const LayerSpecs& specs, int ranks = 1) {
  return LabOptions(LabPipeline(2, ranks, 2),
                    static_cast<int64_t>(specs.size()));
}

// The second stage's third layer fails on rank 1: rank 0 is told.
TEST(MeshStrategyErrorsTest, AFailureIsTheErrorOfEveryRank) {
  LayerSpecs specs = LabSpecs("mlp_small");
  specs.back().make = [make = specs.back().make](uint64_t seed) {
    Layer layer = make(seed);
    layer.forward = [](const at::Tensor&) -> at::Tensor {
      TORCH_CHECK(false, "this layer is broken");
    };
    return layer;
  };
  for (const char* backend : {"gloo", "shm"}) {
    std::vector<absl::Status> said(2);
    LabLayout layout = LabPipeline(2, 2, 4);
    layout.backend = backend;
    LabJob job = ModelJob("mlp_small", kBatch, 1);
    job.specs = [&] { return specs; };
    ExpectOk(OnLabRanks(layout, job, [&](const LabRank& rank) {
      said[static_cast<size_t>(rank.rank)] =
          rank.strategy
              ->TrainStep(LabBatch("mlp_small", kBatch, kLabSeed, 0), kLabRate)
              .status();
      return absl::OkStatus();
    }));
    const std::string where =
        absl::StrCat("forward of microbatch 0 in stage 1, on cpu: layer ",
                     specs.back().name, ": this layer is broken");
    for (const absl::Status& each : said) {
      EXPECT_THAT(each, Says(where)) << backend;
    }
  }
}

TEST(MeshStrategyErrorsTest, ThereIsAFaultPointBeforeTheOptimizer) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  const auto strategy = OnOneRank(specs, OptionsOf(specs));
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  ArmFaults(*ParseFaults("point=before_optimizer,action=fail"));
  const absl::Status status =
      (*strategy)
          ->TrainStep(LabBatch("mlp_small", kBatch, kLabSeed, 0), kLabRate)
          .status();
  ArmFaults({});
  EXPECT_THAT(status, Says("before_optimizer"));
}

// The last stage's device is through when the first one's fails, and updates
// unless it has to wait.
TEST(MeshStrategyErrorsTest, AStepThatFailsHasChangedNothingIfUpdatesAreLast) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  for (const bool last : {false, true}) {
    MeshStrategyOptions options = OptionsOf(specs);
    options.updates_last = last;
    const auto strategy = OnOneRank(specs, options);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const NamedTensors live = (*strategy)->Parameters();
    const TensorsByName before = CopiesOf(live);
    const auto has_changed = [&](const auto& each) {
      return !each.second.cpu().equal(before.at(each.first));
    };
    Fault fault;
    fault.point = "stage:0:backward:1";
    fault.action = Fault::Action::kCall;
    fault.call = [&] {
      const auto soon = absl::Now() + absl::Milliseconds(last ? 300 : 30000);
      while (absl::Now() < soon && !has_changed(live.back())) {
        absl::SleepFor(absl::Milliseconds(5));
      }
      return absl::InternalError("breaks off");
    };
    ArmFaults({fault});
    const absl::Status status =
        (*strategy)
            ->TrainStep(LabBatch("mlp_small", kBatch, kLabSeed, 0), kLabRate)
            .status();
    ArmFaults({});
    EXPECT_THAT(status, Says("breaks off"));
    EXPECT_EQ(absl::c_any_of(live, has_changed), !last);
  }
}

// Both ranks of a pipeline have their gradients when one of them fails: the
// other can end the step by itself, and has what a step that did not fail
// gives.
TEST(MeshStrategyErrorsTest, ARankThatWaitsForTheOthersCanEndItsStep) {
  for (const char* backend : {"gloo", "shm"}) {
    LabLayout layout = LabPipeline(2, 2, 2);
    layout.backend = backend;
    LabJob job = ModelJob("mlp_small", kBatch, 1);
    std::vector<TensorsByName> whole(2);
    const auto step = [&](const LabRank& rank) {
      return rank.strategy
          ->TrainStep(LabBatch("mlp_small", kBatch, kLabSeed, 0), kLabRate)
          .status();
    };
    ExpectOk(OnLabRanks(layout, job, [&](const LabRank& rank) {
      TANDEM_RETURN_IF_ERROR(step(rank));
      // Nothing has failed.
      EXPECT_EQ(rank.strategy->EndBrokenStep(), absl::StatusOr<bool>(false));
      whole[static_cast<size_t>(rank.rank)] =
          CopiesOf(rank.strategy->Parameters());
      return absl::OkStatus();
    }));
    job.change = [change = job.change](MeshStrategyOptions& options) {
      if (change) change(options);
      options.updates_last = true;
    };
    std::atomic<int> there = 0;
    Fault fault;
    fault.point = "updates_last";
    fault.action = Fault::Action::kCall;
    fault.call = [&]() -> absl::Status {
      return there++ == 0 ? absl::InternalError("breaks off")
                          : absl::OkStatus();
    };
    ArmFaults({fault});
    std::atomic<int> ended = 0;
    ExpectOk(OnLabRanks(layout, job, [&](const LabRank& rank) -> absl::Status {
      const TensorsByName before = CopiesOf(rank.strategy->Parameters());
      EXPECT_THAT(step(rank), Says("breaks off"));
      TANDEM_ASSIGN_OR_RETURN(const bool ends, rank.strategy->EndBrokenStep());
      ended += ends ? 1 : 0;
      const TensorsByName& expected =
          ends ? whole[static_cast<size_t>(rank.rank)] : before;
      for (const auto& [name, tensor] : rank.strategy->Parameters()) {
        EXPECT_TRUE(tensor.equal(expected.at(name))) << name << ", " << backend;
      }
      // Once.
      EXPECT_EQ(rank.strategy->EndBrokenStep(), absl::StatusOr<bool>(false));
      return absl::OkStatus();
    }));
    ArmFaults({});
    EXPECT_EQ(ended, 1) << backend;
  }
}

TEST(MeshStrategyErrorsTest, RefusesWhatMakesNoSense) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  ExpectRefusals(
      [&](const LabChange& change) {
        MeshStrategyOptions options = OptionsOf(specs);
        change(options);
        return OnOneRank(specs, options).status();
      },
      {{[](auto& o) { o.clip_norm = -1; }, "clip_norm"},
       {[](auto& o) { o.clip_norm_type = 0; }, "clip_norm_type"},
       {[](auto& o) {
          o.updates_last = true;
          o.averaging.emplace();
        },
        "excludes averaging of parameters"},
       {[](auto& o) {
          o.updates_last = true;
          o.shard = Sharding::kAuto;
        },
        "excludes shard"},
       {[](auto& o) { o.weight_gradient_batch = 0; }, "weight_gradient_batch"},
       {[](auto& o) { o.schedule.actions[0].pop_back(); }, "microbatch"},
       {[](auto& o) {
          o.schedule.actions[0].pop_back();
          o.schedule.stages_of[1].clear();
        },
        "stage 1 is on 0 devices"},
       {[](auto& o) { o = MeshStrategyOptions(); },
        "a list of stages and of actions for each device"}});
}

TEST(MeshStrategyErrorsTest, RefusesAModelWithoutALoss) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  const auto made =
      MeshStrategy::Create(specs, nullptr, OptionsOf(specs), nullptr);
  EXPECT_THAT(made.status(), InvalidArgument("there is no loss function"));
}

// A product with a tensor that requires a gradient is no leaf.
TEST(MeshStrategyErrorsTest, AParameterThatIsNoLeafIsRefusedByEveryRank) {
  LayerSpecs specs = LabSpecs("mlp_small");
  specs.back().make = [make = specs.back().make](uint64_t seed) {
    Layer layer = make(seed);
    layer.module->register_parameter(
        "scaled", at::zeros({3}).requires_grad_(true).mul(0.1));
    return layer;
  };
  ExpectOk(RunThreadRanks(2, [&](Communicator& world) {
    const auto made = MeshStrategy::Create(
        specs, CrossEntropy, OptionsOf(specs, /*ranks=*/2), &world);
    EXPECT_THAT(made.status(),
                InvalidArgument(".scaled is computed from other tensors"));
    return absl::OkStatus();
  }));
}

TEST(MeshStrategyErrorsTest, StateOfAnotherModelIsRefused) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  const auto strategy = OnOneRank(specs, OptionsOf(specs));
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  NamedTensors state = (*strategy)->Parameters();
  state.pop_back();
  EXPECT_FALSE((*strategy)->LoadModelState(state).ok());
  EXPECT_FALSE(
      (*strategy)
          ->LoadOptimizerState({{"nobody.momentum_buffer", at::zeros({1})}})
          .ok());
}

// By both of them: none takes it for the other's.
TEST(MeshStrategyErrorsTest, APipelineRefusesStateThatNoneOfItsRanksHas) {
  const LayerSpecs specs = LabSpecs("mlp_small");
  const auto whole = OnOneRank(specs, OptionsOf(specs));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const NamedTensors model = (*whole)->Parameters();
  NamedTensors larger = model;
  larger.emplace_back("fc99.weight", at::zeros({2}));
  const StoredTensors state = {{"fc99.weight.momentum_buffer", at::zeros({2})}};
  ExpectOk(RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        const auto strategy,
        MeshStrategy::Create(specs, CrossEntropy, OptionsOf(specs, /*ranks=*/2),
                             &world));
    for (const absl::Status& refused :
         {strategy->CheckModelState(larger), strategy->LoadModelState(larger),
          strategy->CheckOptimizerState(state),
          strategy->LoadOptimizerState(state)}) {
      EXPECT_THAT(refused, InvalidArgument("fc99.weight"));
    }
    return strategy->LoadModelState(model);
  }));
}

LayerSpecs Blocks(int count) {
  LayerSpecs specs;
  for (int i = 0; i < count; ++i) {
    specs.push_back(LinearLayer(absl::StrCat("block", i), 5, 5));
  }
  return specs;
}

// The first half of a deeper model would fit.
TEST(MeshStrategyErrorsTest, APipelineRefusesACheckpointOfALargerModel) {
  FolderSave save;
  save.path = NewTestFolder("larger") + "/step";
  save.metadata = CheckpointMetadata(TrainingProgress());
  const auto larger = OnOneRank(Blocks(8), OptionsOf(Blocks(8)));
  ASSERT_TRUE(larger.ok()) << larger.status();
  const auto part = (*larger)->PartToSave();
  ASSERT_TRUE(part.ok()) << part.status();
  ExpectOk(SaveFolder(save, *part).status());
  ExpectOk(RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    MeshStrategyOptions options = OptionsOf(Blocks(4), /*ranks=*/2);
    options.seed = 3;
    TANDEM_ASSIGN_OR_RETURN(
        const auto strategy,
        MeshStrategy::Create(Blocks(4), CrossEntropy, options, &world));
    const TensorsByName before = CopiesOf(strategy->Parameters());
    TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                            OpenCheckpointAt(save.path));
    for (const absl::Status& refused :
         {strategy->CheckModelState(stored.model),
          strategy->LoadModelState(stored.model)}) {
      EXPECT_THAT(refused, InvalidArgument("block4.", "has no place"));
    }
    ExpectSameBits(CopiesOf(strategy->Parameters()), before);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::mesh_strategy_errors_test
