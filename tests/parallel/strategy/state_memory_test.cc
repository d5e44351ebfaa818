// Saving, resuming and putting buffers into another order hold no second copy
// of a model or of its optimizer's state: counted on simulated devices.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/safetensors.h"
#include "core/memory/state_bytes.h"
#include "core/model/layer_list.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/schedule/schedules.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"

namespace tandem::state_memory_test {
namespace {

constexpr int64_t kInputs = 64;
constexpr int64_t kClasses = 10;
constexpr int64_t kBatch = 8;
constexpr double kRate = 0.01;

LayerSpecs Specs() { return Mlp({kInputs, 6, 96, kClasses}); }

// The weight of a middle layer.
constexpr int64_t kLargestTensor = 96 * 96 * 4;

const std::vector<c10::Device>& Devices() {
  static const auto* const devices =
      new std::vector<c10::Device>(SimDevices(4));
  return *devices;
}

Batch BatchOf(int step) {
  const at::Tensor inputs =
      at::arange(double(kBatch * kInputs), at::kFloat).remainder(7);
  return {inputs.add(step).view({kBatch, kInputs}),
          at::arange(kBatch, at::kLong).remainder(kClasses), kBatch};
}

int64_t InUse(int device) {
  return sim::DeviceMemoryStatistics(device).now.total;
}

// How much more than before the device held at most during `work`.
absl::Status Extra(int device, const std::function<absl::Status()>& work,
                   int64_t* extra) {
  const int64_t before = InUse(device);
  sim::ResetPeak(device);
  TANDEM_RETURN_IF_ERROR(work());
  *extra = sim::DeviceMemoryStatistics(device).peak.total - before;
  return absl::OkStatus();
}

std::string Path(const std::string& name) {
  return testing::TempDir() + "/" + name + ".safetensors";
}

absl::Status Save(Strategy& strategy, const std::string& path, int rank) {
  SafetensorsWriter writer(path, CheckpointMetadata(TrainingProgress()));
  StateParts parts;
  parts.optimizer = true;
  TANDEM_RETURN_IF_ERROR(strategy.StreamState(parts, writer));
  return rank == 0 ? writer.Commit() : absl::OkStatus();
}

absl::Status Load(Strategy& strategy, const StoredCheckpoint& checkpoint) {
  TANDEM_RETURN_IF_ERROR(strategy.LoadModelState(checkpoint.model));
  return strategy.LoadOptimizerState(checkpoint.optimizer);
}

std::string StateHash(const Strategy& strategy) {
  return WeightsSha256(strategy.Parameters()) +
         WeightsSha256(strategy.OptimizerState());
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeReplica(Communicator& world) {
  ReplicatedOptions options;
  options.device = Devices()[static_cast<size_t>(world.rank())];
  options.optimizer = AdamOptions();
  return MakeReplicated(MakeLayers(Specs(), 1), CrossEntropy, options, world);
}

absl::StatusOr<std::unique_ptr<Strategy>> MakePipeline(Communicator& world) {
  const LayerSpecs specs = Specs();
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule("1f1b", {2, 1, 2});
  options.cuts = *UniformCuts(static_cast<int64_t>(specs.size()), 2);
  options.devices = {Devices()[static_cast<size_t>(world.rank())]};
  options.optimizer = AdamOptions();
  return MeshStrategy::Create(specs, CrossEntropy, options, &world);
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeSharing(Communicator& world) {
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule, SequentialSchedule(1, 1));
  options.devices = {Devices()[static_cast<size_t>(world.rank())]};
  options.optimizer = AdamOptions();
  options.shard = Sharding::kOptimizer;
  return MeshStrategy::Create(Specs(), CrossEntropy, options, &world);
}

using Make = absl::StatusOr<std::unique_ptr<Strategy>> (*)(Communicator&);

// Trains, saves, and loads into a second one; `extra[rank]`: what saving took.
absl::Status SaveAndLoad(Make make, const std::string& path,
                         Communicator& world, std::vector<int64_t>* extra) {
  const int rank = world.rank();
  TANDEM_ASSIGN_OR_RETURN(const auto first, make(world));
  for (int step = 0; step < 3; ++step) {
    TANDEM_RETURN_IF_ERROR(first->TrainStep(BatchOf(step), kRate).status());
  }
  TANDEM_RETURN_IF_ERROR(world.Barrier());
  TANDEM_RETURN_IF_ERROR(Extra(
      rank, [&] { return Save(*first, path, rank); },
      &(*extra)[static_cast<size_t>(rank)]));
  TANDEM_RETURN_IF_ERROR(world.Barrier());
  TANDEM_ASSIGN_OR_RETURN(const auto second, make(world));
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint,
                          OpenCheckpoint(path));
  int64_t loading = 0;
  TANDEM_RETURN_IF_ERROR(Extra(
      rank, [&] { return Load(*second, checkpoint); }, &loading));
  EXPECT_LE(loading, kLargestTensor) << "loading, rank " << rank;
  EXPECT_EQ(StateHash(*second), StateHash(*first)) << "rank " << rank;
  return world.Barrier();
}

TEST(StateMemoryTest, SavingReplicasTakesNoDeviceMemory) {
  std::vector<int64_t> extra(2, -1);
  const absl::Status status = RunThreadRanks(2, [&](Communicator& world) {
    return SaveAndLoad(MakeReplica, Path("replicas"), world, &extra);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(extra, testing::Each(0));
}

// Ranks 0 and 1 are the first replica; rank 0 writes, and takes the next
// stage's tensors in the host's memory.
TEST(StateMemoryTest, SavingPipelinesTakesNoDeviceMemory) {
  std::vector<int64_t> extra(4, -1);
  const absl::Status status = RunThreadRanks(4, [&](Communicator& world) {
    return SaveAndLoad(MakePipeline, Path("pipelines"), world, &extra);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(extra, testing::Each(0));
}

// Each rank has a part of the optimizer's state; rank 0 writes all of it.
TEST(StateMemoryTest, SavingASharedOptimizerTakesATensorOfAnothersShare) {
  for (const int ranks : {2, 3}) {
    std::vector<int64_t> extra(static_cast<size_t>(ranks), -1);
    const absl::Status status = RunThreadRanks(ranks, [&](Communicator& world) {
      return SaveAndLoad(MakeSharing, Path("sharing"), world, &extra);
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_GT(extra[0], 0);
    EXPECT_LE(extra[0], kLargestTensor);
    EXPECT_THAT(std::vector<int64_t>(extra.begin() + 1, extra.end()),
                testing::Each(0));
  }
}

// What is in a file, and the names that were read from it.
StoredTensors Watched(const StoredTensors& stored,
                      std::set<std::string>* read) {
  StoredTensors watched;
  for (StoredTensor each : stored) {
    each.read = [inner = each.read, name = each.info.name, read] {
      read->insert(name);
      return inner();
    };
    each.verify = [inner = each.verify, name = each.info.name, read] {
      read->insert(name);
      return inner ? inner() : absl::OkStatus();
    };
    watched.Add(std::move(each));
  }
  return watched;
}

TEST(StateMemoryTest, ARankReadsItsOwnTensorsAlone) {
  ExpectOk(RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto strategy, MakePipeline(world));
    NamedTensors model;
    NamedTensors state;
    for (const auto& [name, tensor] : NamedParameters(MakeLayers(Specs(), 2))) {
      model.emplace_back(name, tensor.detach());
      state.emplace_back(name + ".exp_avg", at::zeros(tensor.sizes()));
      state.emplace_back(name + ".exp_avg_sq", at::zeros(tensor.sizes()));
      state.emplace_back(name + ".step", at::zeros({}));
    }
    std::set<std::string> mine, owners, read, read_state;
    for (const auto& each : strategy->Parameters()) mine.insert(each.first);
    TANDEM_RETURN_IF_ERROR(strategy->LoadModelState(Watched(model, &read)));
    TANDEM_RETURN_IF_ERROR(
        strategy->LoadOptimizerState(Watched(state, &read_state)));
    for (const std::string& name : read_state) {
      owners.insert(name.substr(0, name.rfind('.')));
    }
    EXPECT_EQ(read, mine);
    EXPECT_EQ(owners, mine);
    EXPECT_LT(mine.size(), model.size());
    return absl::OkStatus();
  }));
}

// It is so between two steps, when buckets are rebuilt.
TEST(StateMemoryTest, AnotherOrderTakesNoMemoryWhereThereAreNoGradients) {
  const c10::Device device = Devices()[0];
  NamedTensors parameters;
  for (int i = 0; i < 4; ++i) {
    parameters.emplace_back(
        absl::StrCat("p", i),
        at::arange(1000. + i).add(i).to(device).requires_grad_(true));
  }
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  FlatBuffer& flat = *buffers[0];
  const at::Tensor state = flat.AddState();
  state.copy_(flat.values()).mul_(2);
  parameters[1].second.sum().backward();
  flat.ZeroGrad();
  int64_t extra = -1;
  ASSERT_TRUE(Extra(
                  0,
                  [&] {
                    flat.Reorder({2, 0, 3, 1});
                    return absl::OkStatus();
                  },
                  &extra)
                  .ok());
  EXPECT_EQ(extra, 0);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor expected = at::arange(1000. + i).add(i);
    EXPECT_TRUE(parameters[i].second.detach().cpu().equal(expected)) << i;
  }
  for (const FlatSlot& slot : flat.slots()) {
    EXPECT_TRUE(flat.View(state, slot).equal(slot.parameter.detach().mul(2)))
        << slot.name;
  }
  EXPECT_EQ(flat.grads().abs().max().item<float>(), 0);
  EXPECT_TRUE(flat.CheckViews().ok());
}

MeshStrategyOptions Adam() {
  MeshStrategyOptions options;
  options.schedule = *OneFOneB({2, 1, 8});
  options.optimizer = AdamWOptions{};
  return options;
}

TEST(StatePerParameterTest, IsTheOptimizersSharedWhereItIs) {
  MeshStrategyOptions options = Adam();
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_states, 2);
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_shares, 1);
  options.shard = Sharding::kAuto;
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_shares, 4);
  EXPECT_EQ(KeptStatePerParameter(options, 4, false).optimizer_shares, 1);
  options.ddp.static_graph = true;
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_shares, 1);
  options = Adam();
  options.shard = Sharding::kOptimizer;
  EXPECT_EQ(KeptStatePerParameter(options, 4, false).optimizer_shares, 4);
  options.shard = Sharding::kAuto;
  options.optimizer = SgdOptions{0.9};
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_states, 1);
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_shares, 1);
}

TEST(StatePerParameterTest, GradientsAndParametersAreSharedWhereTheyAre) {
  MeshStrategyOptions options = Adam();
  options.shard = Sharding::kGradients;
  StatePerParameter kept = KeptStatePerParameter(options, 4, false);
  EXPECT_EQ(kept.optimizer_shares, 4);
  EXPECT_EQ(kept.gradient_shares, 4);
  EXPECT_EQ(kept.parameter_shares, 1);
  options.shard = Sharding::kParameters;
  options.data_shard = 2;
  kept = KeptStatePerParameter(options, 4, false);
  EXPECT_EQ(kept.optimizer_shares, 2);
  EXPECT_EQ(kept.gradient_shares, 2);
  EXPECT_EQ(kept.parameter_shares, 2);
  // A pipeline has whole gradients until all microbatches have added to them.
  EXPECT_TRUE(kept.whole_gradients);
  StateBytes state = ComputeStateBytes(1000, 500, true, kept);
  EXPECT_EQ(state.parameters, 500);
  EXPECT_EQ(state.gathered, 500);
  EXPECT_EQ(ComputeStateBytes(1000, 0, true, kept).gathered, 1000);
  EXPECT_EQ(kept.gathered_together, options.shard_min_num_params);
  EXPECT_EQ(state.gradients, 500 + 1000);
  EXPECT_EQ(state.optimizer, 1000);
  options.reshard_after_forward = false;
  options.schedule = *OneFOneB({1, 1, 1});
  kept = KeptStatePerParameter(options, 4, false);
  state = ComputeStateBytes(1000, 500, true, kept);
  EXPECT_EQ(state.parameters, 500 + 500);
  EXPECT_EQ(state.gathered, 0);
  EXPECT_EQ(state.gradients, 500);
  EXPECT_EQ(ComputeStateBytes(1000, 0, true, kept).parameters, 500 + 1000);
  options.reproducible = true;
  kept = KeptStatePerParameter(options, 4, false);
  EXPECT_EQ(kept.gradient_shares, 1);
  EXPECT_EQ(kept.parameter_shares, 2);
}

TEST(StatePerParameterTest, HasDiLoCosValuesAndMomentum) {
  MeshStrategyOptions options = Adam();
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 0);
  options.averaging = ParameterAveragingOptions{10, 0};
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 1);
  options.averaging->outer = OuterOptimizerOptions{0.7, 0};
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 2);
  options.averaging->outer->momentum = 0.9;
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 3);
  // A device's values are kept in the host's memory meanwhile.
  options.devices = {c10::kCUDA};
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 2);
}

TEST(StatePerParameterTest, HasTheAverages) {
  MeshStrategyOptions options = Adam();
  options.ema_decay = 0.9;
  EXPECT_EQ(KeptStatePerParameter(options, 1, true).further, 1);
  // They are whole on each replica, whoever has the optimizer's state.
  options.shard = Sharding::kOptimizer;
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).further, 1);
  EXPECT_EQ(KeptStatePerParameter(options, 4, true).optimizer_shares, 4);
}

// log2 of a replica's groups and one; one to send; one for groups in two parts.
TEST(StatePerParameterTest, HasTheSumsOfReproducible) {
  MeshStrategyOptions options = Adam();
  options.reproducible = true;
  EXPECT_EQ(KeptStatePerParameter(options, 1, true).further, 4);
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 5);
  options.gradient_groups = 2;
  EXPECT_EQ(KeptStatePerParameter(options, 1, true).further, 2);
  EXPECT_EQ(KeptStatePerParameter(options, 2, true).further, 2);
  options.schedule = *ZeroBubbleH1({2, 1, 8});
  EXPECT_EQ(KeptStatePerParameter(options, 1, true).further, 3);
}

}  // namespace
}  // namespace tandem::state_memory_test
