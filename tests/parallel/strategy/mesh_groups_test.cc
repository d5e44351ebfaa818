#include "parallel/step/mesh_groups.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tandem::mesh_groups_test
