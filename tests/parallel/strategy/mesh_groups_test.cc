#include "parallel/step/mesh_groups.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_checks.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"

namespace tandem::mesh_groups_test {
namespace {

using Ranks = std::vector<int>;

struct Shape {
  int data;
  int pipe;
  int tensor = 1;
  int shard = 1;

  Mesh mesh() const {
    return *Mesh::Create(data * pipe * tensor * shard, {pipe, tensor, shard});
  }
};

std::string NameOf(const Shape& shape) {
  std::string name = absl::StrCat(shape.data, "x", shape.pipe);
  if (shape.tensor > 1) absl::StrAppend(&name, "_tensor", shape.tensor);
  if (shape.shard > 1) absl::StrAppend(&name, "_shard", shape.shard);
  return name;
}

// All on the rank's first device.
std::map<int, c10::Device> Placed(const Ranks& stages) {
  std::map<int, c10::Device> placed;
  for (const int stage : stages) placed.emplace(stage, TestDevice());
  return placed;
}

// Two stages a rank, as with two chunks a device: p and p + pipe.
Ranks StagesOf(const Mesh& mesh, int rank) {
  const int pipe = mesh.IndexAlong(kPipeAxis, rank);
  return {pipe, pipe + mesh.pipe()};
}

// Which ranks of the world are in the group, in its order.
absl::StatusOr<Ranks> MembersOf(Communicator& group, int world_rank) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          group.AllGatherString(absl::StrCat(world_rank)));
  Ranks ranks;
  for (const std::string& each : all) ranks.push_back(std::stoi(each));
  return ranks;
}

absl::Status ExpectMembers(Communicator* group, const Ranks& expected,
                           const std::string& name, int world_rank) {
  if (expected.size() == 1) {
    EXPECT_EQ(group, nullptr) << name;
    return absl::OkStatus();
  }
  EXPECT_NE(group, nullptr) << name;
  if (group == nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const Ranks members, MembersOf(*group, world_rank));
  EXPECT_EQ(members, expected) << name;
  EXPECT_EQ(group->name(), name);
  return absl::OkStatus();
}

class MeshGroupsTest : public testing::TestWithParam<Shape> {};

TEST_P(MeshGroupsTest, JoinTheRanksOfAPipelineAndTheReplicasOfEachStage) {
  const Shape shape = GetParam();
  const Mesh mesh = shape.mesh();
  ExpectOk(RunDeviceRanks(
      mesh.world_size(), [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        const int replica = mesh.ReplicaIndex(rank);
        const Ranks stages = StagesOf(mesh, rank);
        TANDEM_ASSIGN_OR_RETURN(
            const MeshGroups groups,
            MeshGroups::Create(&world, mesh, Placed(stages)));
        EXPECT_EQ(groups.world(), &world);
        EXPECT_EQ(groups.replica(), replica);
        EXPECT_EQ(groups.replicas(), shape.data * shape.shard);
        const std::string part =
            shape.tensor == 1
                ? ""
                : absl::StrCat(", part ", mesh.IndexAlong(kTensorAxis, rank));
        // A group of all ranks is none of its own.
        const auto expect = [&](Communicator* group, const Ranks& ranks,
                                const std::string& name) {
          const bool all = static_cast<int>(ranks.size()) == world.size();
          return ExpectMembers(group, ranks, all ? "world" : name, rank);
        };
        TANDEM_RETURN_IF_ERROR(
            expect(groups.pipe(), mesh.RanksAlong({kPipeAxis}, rank),
                   absl::StrCat("pipeline of replica ", replica, part)));
        TANDEM_RETURN_IF_ERROR(
            expect(groups.scores(),
                   mesh.RanksAlong({kDataAxis, kShardAxis, kPipeAxis}, rank),
                   absl::StrCat("replicas' pipelines", part)));
        for (const int stage : stages) {
          TANDEM_RETURN_IF_ERROR(ExpectMembers(
              groups.data(stage), mesh.RanksOfReplicas(rank),
              absl::StrCat("replicas of stage ", stage, part), rank));
        }
        if (groups.replicas() > 1) {
          EXPECT_NE(groups.data(stages[0]), groups.data(stages[1]));
        }
        return absl::OkStatus();
      }));
}

// Rank 0 gives up: whoever shares a group with it hears why, in each of them,
// and the others go on.
TEST_P(MeshGroupsTest, AbortReachesEveryGroup) {
  const Shape shape = GetParam();
  const Mesh mesh = shape.mesh();
  const absl::Status reason = absl::DataLossError("the cable is out");
  ExpectOk(RunDeviceRanks(
      mesh.world_size(), [&](Communicator& world) -> absl::Status {
        const int rank = world.rank();
        const int replica = mesh.ReplicaIndex(rank);
        TANDEM_ASSIGN_OR_RETURN(
            MeshGroups groups,
            MeshGroups::Create(&world, mesh, Placed(StagesOf(mesh, rank))));
        if (rank == 0) groups.Abort(reason);
        const auto expect_aborted = [&](Communicator* group, bool with_rank_0) {
          if (group == nullptr) return;
          const absl::Status said = group->Barrier();
          if (!with_rank_0) {
            EXPECT_TRUE(said.ok()) << group->name() << ": " << said;
            return;
          }
          EXPECT_FALSE(said.ok()) << group->name() << " on rank " << rank;
          EXPECT_THAT(said, Says("the cable is out"))
              << group->name() << " on rank " << rank;
        };
        for (const int stage : StagesOf(mesh, rank)) {
          expect_aborted(groups.data(stage),
                         mesh.IndexAlong(kPipeAxis, rank) == 0 &&
                             mesh.IndexAlong(kTensorAxis, rank) == 0);
        }
        expect_aborted(groups.scores(),
                       mesh.IndexAlong(kTensorAxis, rank) == 0);
        expect_aborted(groups.pipe(),
                       replica == 0 && mesh.IndexAlong(kTensorAxis, rank) == 0);
        expect_aborted(groups.world(), true);
        return absl::OkStatus();
      }));
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshGroupsTest,
                         testing::Values(Shape{1, 2}, Shape{1, 3}, Shape{2, 1},
                                         Shape{3, 1}, Shape{2, 2}, Shape{2, 3},
                                         Shape{3, 2}, Shape{1, 1, 2},
                                         Shape{2, 1, 3}, Shape{1, 2, 2},
                                         Shape{2, 1, 1, 2}, Shape{1, 1, 2, 3},
                                         Shape{1, 2, 2, 2}),
                         [](const auto& info) { return NameOf(info.param); });

TEST(HybridGroupsOfOneTest, HaveNobodyToTalkTo) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) -> absl::Status {
    for (Communicator* const each :
         std::vector<Communicator*>{&world, nullptr}) {
      TANDEM_ASSIGN_OR_RETURN(
          MeshGroups groups,
          MeshGroups::Create(each, Mesh(), Placed({0, 1, 2})));
      EXPECT_EQ(groups.world(), nullptr);
      EXPECT_EQ(groups.pipe(), nullptr);
      EXPECT_EQ(groups.data(2), nullptr);
      EXPECT_EQ(groups.replica(), 0);
      EXPECT_EQ(groups.replicas(), 1);
      groups.Abort(absl::InternalError("nobody hears"));
    }
    return absl::OkStatus();
  }));
}

// Groups of several stages along the same ranks do not wait for each other.
TEST(HybridGroupsOrderTest, StagesHaveAnOrderOfTheirOwn) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        const MeshGroups groups,
        MeshGroups::Create(&world, *Mesh::Create(2, {}), Placed({0, 1})));
    std::vector<at::Tensor> sums;
    std::vector<PendingCollective> pending;
    // Each rank begins with another stage.
    for (const int i : {0, 1}) {
      const int stage = (world.rank() + i) % 2;
      sums.push_back(at::full({3}, 10 * stage + world.rank(), at::kFloat)
                         .to(TestDevice()));
      TANDEM_ASSIGN_OR_RETURN(
          PendingCollective started,
          groups.data(stage)->StartAllReduceSum(sums.back()));
      pending.push_back(std::move(started));
    }
    for (const int i : {0, 1}) {
      const int stage = (world.rank() + i) % 2;
      TANDEM_RETURN_IF_ERROR(pending[static_cast<size_t>(i)].Wait());
      EXPECT_TRUE(sums[static_cast<size_t>(i)].cpu().equal(
          at::full({3}, 20 * stage + 1, at::kFloat)));
    }
    return absl::OkStatus();
  }));
}

LayerSpecs Specs() { return LabSpecs("mlp_small"); }

// Two ranks with a stage each.
MeshStrategyOptions Options() {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule("1f1b", {2, 1, 4});
  options.cuts = {3};
  return options;
}

struct OtherOption {
  const char* name;  // that the message is to call it by
  std::function<void(MeshStrategyOptions&)> change;
};

const std::vector<OtherOption>& OtherOptions() {
  static const auto* options = new std::vector<OtherOption>{
      {"schedule's device 0",
       [](auto& o) {
         o.schedule = *MakeSchedule("gpipe", {2, 1, 4});
       }},
      {"schedule's microbatches",
       [](auto& o) {
         o.schedule = *MakeSchedule("1f1b", {2, 1, 8});
       }},
      {"cuts", [](auto& o) { o.cuts = {4}; }},
      {"devices.size()", [](auto& o) { o.devices.push_back(c10::kCPU); }},
      {"microbatch_size", [](auto& o) { o.microbatch_size = 3; }},
      {"ddp.mixed_precision",
       [](auto& o) { o.ddp.mixed_precision.param_dtype = at::kBFloat16; }},
      {"uneven_batches", [](auto& o) { o.uneven_batches = true; }},
      {"pipeline.checkpointing",
       [](auto& o) {
         o.pipeline.checkpointing = ActivationCheckpointing::kAlways;
       }},
      {"pipeline.selective.layers",
       [](auto& o) { o.pipeline.selective.layers = "^b"; }},
      {"pipeline.selective.every",
       [](auto& o) { o.pipeline.selective.every = 2; }},
      {"pipeline.defers_statistics",
       [](auto& o) { o.pipeline.defers_statistics = true; }},
      {"weight_gradient_batch", [](auto& o) { o.weight_gradient_batch = 2; }},
      {"seed", [](auto& o) { o.seed = 5; }},
      {"optimizer", [](auto& o) { o.optimizer = SgdOptions{0.9}; }},
      {"optimizer", [](auto& o) { o.optimizer = AdamOptions(); }},
      {"optimizer", [](auto& o) { o.optimizer = MuonOptions(); }},
      {"further_optimizers[0]",
       [](auto& o) { o.further_optimizers = {AdamWOptions()}; }},
      {"optimizer_group",
       [](auto& o) { o.optimizer_group = [](const auto&) { return 0; }; }},
      {"clip_norm", [](auto& o) { o.clip_norm = 1; }},
      {"clip_norm_type", [](auto& o) { o.clip_norm_type = 1; }},
      {"error_if_nonfinite", [](auto& o) { o.error_if_nonfinite = true; }},
      {"clip_value", [](auto& o) { o.clip_value = 1; }},
      {"ddp.bucket_cap_mb", [](auto& o) { o.ddp.bucket_cap_mb = 1; }},
      {"ddp.bucket_cap_mb_list",
       [](auto& o) {
         o.ddp.bucket_cap_mb_list = {1, 2};
       }},
      {"ddp.find_unused_parameters",
       [](auto& o) { o.ddp.find_unused_parameters = true; }},
      {"ddp.static_graph", [](auto& o) { o.ddp.static_graph = true; }},
      {"ddp.init_sync", [](auto& o) { o.ddp.init_sync = false; }},
      {"ddp.delay_all_reduce_named_params",
       [](auto& o) { o.ddp.delay_all_reduce_named_params = {"a"}; }},
      {"ddp.param_to_hook_all_reduce",
       [](auto& o) { o.ddp.param_to_hook_all_reduce = "a"; }},
      {"ddp.skip_all_reduce_unused_params",
       [](auto& o) { o.ddp.skip_all_reduce_unused_params = true; }},
      {"ddp.parameters_to_ignore",
       [](auto& o) { o.ddp.parameters_to_ignore = {"a"}; }},
      {"averaging",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{2, 1};
       }},
      {"make_hook",
       [](auto& o) { o.make_hook = [] { return CommunicationHook(); }; }},
      {"ddp.broadcast_buffers",
       [](auto& o) { o.ddp.broadcast_buffers = false; }},
      {"ema_decay", [](auto& o) { o.ema_decay = 0.9; }},
      {"reproducible", [](auto& o) { o.reproducible = true; }},
      {"gradient_groups", [](auto& o) { o.gradient_groups = 2; }},
      {"uneven_division",
       [](auto& o) { o.uneven_division = UnevenDivision::kInitialReplicas; }},
      {"shard", [](auto& o) { o.shard = Sharding::kOptimizer; }},
      {"compares_replicas", [](auto& o) { o.compares_replicas = true; }},
      {"sync_batch_norm", [](auto& o) { o.sync_batch_norm = true; }},
      {"grad_scaler", [](auto& o) { o.grad_scaler = GradScalerOptions(); }},
  };
  return *options;
}

TEST(MeshAgreementTest, EveryOptionThatDiffersIsNamed) {
  const NamedValues usual =
      MeshStrategyValues(Specs(), CrossEntropy, Options());
  for (const OtherOption& other : OtherOptions()) {
    MeshStrategyOptions options = Options();
    other.change(options);
    const absl::Status compared = CompareValues(
        {usual, MeshStrategyValues(Specs(), CrossEntropy, options)}, {},
        "options");
    EXPECT_THAT(compared, Says(std::string(other.name) + " is "));
  }
}

TEST(MeshAgreementTest, ALossThatTakesSomethingElseIsNamed) {
  const NamedValues usual =
      MeshStrategyValues(Specs(), CrossEntropy, Options());
  const LossFunction::NamedLoss of_masked = [](const LossArguments& arguments) {
    return CrossEntropy(arguments.outputs, arguments.targets);
  };
  const std::pair<const char*, LossFunction> others[] = {
      {"loss's targets is (empty) on rank 0, mask on rank 1",
       LossFunction({{}, {"mask"}}, of_masked)},
      {"loss's outputs is (empty) on rank 0, head on rank 1",
       LossFunction({{"head"}, {}}, of_masked)}};
  for (const auto& [says, loss] : others) {
    const absl::Status compared = CompareValues(
        {usual, MeshStrategyValues(Specs(), loss, Options())}, {}, "options");
    EXPECT_THAT(compared, Says(says));
  }
}

TEST(MeshAgreementTest, NamesOfSchedulesAndTimeoutsMayDiffer) {
  MeshStrategyOptions options = Options();
  options.schedule.name = "/another/path";
  options.pipeline.timeout = std::chrono::seconds(3);
  EXPECT_EQ(MeshStrategyValues(Specs(), CrossEntropy, options),
            MeshStrategyValues(Specs(), CrossEntropy, Options()));
}

// Without the comparison these end by timeout, or train something else.
TEST(MeshAgreementTest, CreateRefusesOnEveryRank) {
  const auto create =
      [](const std::string& model,
         const std::function<void(MeshStrategyOptions&)>& change,
         const std::string& says) {
        ExpectOk(RunThreadRanks(2, [&](Communicator& world) {
          MeshStrategyOptions options = Options();
          if (world.rank() == 1) change(options);
          const absl::Status status =
              MeshStrategy::Create(
                  LabSpecs(world.rank() == 1 ? model : "mlp_small"),
                  CrossEntropy, options, &world)
                  .status();
          EXPECT_THAT(status, InvalidArgument(says));
          return absl::OkStatus();
        }));
      };
  create(
      "mlp_small", [](auto& o) { o.cuts = {4}; },
      "cuts is 3 on rank 0, 4 on rank 1");
  create(
      "mlp_small", [](auto& o) { o.seed = 5; },
      "seed is 0 on rank 0, 5 on rank 1");
  create(
      "mlp_small",
      [](auto& o) {
        o.schedule = *MakeSchedule("1f1b", {2, 1, 8});
      },
      "schedule's microbatches is 4 on rank 0, 8 on rank 1");
  create(
      "mlp_deep", [](auto&) {}, "layers is ...");
}

// Also where the parameter is another rank's.
TEST(MeshAgreementTest, AGroupThatRanksSeeDifferentlyIsNamed) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) {
    MeshStrategyOptions options = Options();
    options.further_optimizers = {SgdOptions{0.9}};
    options.optimizer_group = [&](const std::string& name) {
      return name == "fc1.bias" ? world.rank() : 0;
    };
    const absl::Status status =
        MeshStrategy::Create(Specs(), CrossEntropy, options, &world).status();
    EXPECT_THAT(status, Says("optimizer_group of fc1.bias is 0 on rank 0, 1 on "
                             "rank 1"));
    return absl::OkStatus();
  }));
}

TEST(MeshAgreementTest, RanksThatAgreeGoOn) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) {
    return MeshStrategy::Create(Specs(), CrossEntropy, Options(), &world)
        .status();
  }));
}

}  // namespace
}  // namespace tandem::mesh_groups_test
