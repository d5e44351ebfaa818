#include "core/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mesh MakeMesh(int world_size, int pipe) {
  return Mesh::Create(world_size, {.pipe = pipe}).value();
}

// Two to four axes, some of them of one rank; primes among the degrees.
std::vector<std::vector<MeshAxis>> Grids() {
  return {
      {{"data", 2}, {"pipe", 3}},
      {{"pipe", 3}, {"data", 2}},
      {{"data", 1}, {"pipe", 7}},
      {{"data", 2}, {"pipe", 3}, {"tensor", 5}},
      {{"data", 3}, {"context", 2}, {"pipe", 1}, {"tensor", 2}},
      {{"tensor", 7}},
      {},
  };
}

std::vector<int> AllRanks(const Mesh& mesh) {
  std::vector<int> ranks;
  for (int i = 0; i < mesh.world_size(); ++i) ranks.push_back(i);
  return ranks;
}

TEST(MeshTest, PipeIsFastest) {
  const Mesh mesh = MakeMesh(6, 3);
  EXPECT_EQ(mesh.replicas(), 2);
  EXPECT_EQ(mesh.ToString(), "data 2 x pipe 3");
  EXPECT_THAT(mesh.RanksAlong({kPipeAxis}, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(mesh.RanksAlong({kPipeAxis}, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(mesh.RanksAlong({kDataAxis}, 0), ElementsAre(0, 3));
  EXPECT_THAT(mesh.RanksAlong({kDataAxis}, 5), ElementsAre(2, 5));
  EXPECT_EQ(mesh.IndexAlong(kDataAxis, 5), 1);
  EXPECT_EQ(mesh.IndexAlong(kPipeAxis, 5), 2);
}

TEST(MeshTest, OneRankByDefault) {
  const Mesh mesh;
  EXPECT_EQ(mesh.world_size(), 1);
  EXPECT_EQ(mesh.ToString(), "data 1 x pipe 1");
  EXPECT_THAT(mesh.RanksAlong({kDataAxis}, 0), ElementsAre(0));
  EXPECT_THAT(mesh.RanksAlong({kPipeAxis}, 0), ElementsAre(0));
}

TEST(MeshTest, EveryDegreeDividesOrIsRefusedByName) {
  for (int world = 1; world <= 24; ++world) {
    for (int pipe = 1; pipe <= 24; ++pipe) {
      const auto mesh = Mesh::Create(world, {.pipe = pipe});
      EXPECT_EQ(mesh.ok(), world % pipe == 0) << world << " " << pipe;
      if (!mesh.ok()) continue;
      EXPECT_EQ(mesh->world_size(), world);
      EXPECT_EQ(mesh->replicas() * mesh->pipe(), world);
    }
  }
  EXPECT_THAT(Mesh::Create(4, {.pipe = 3}).status().message(),
              HasSubstr("pipe degree 3 does not divide the world size 4:"));
  EXPECT_THAT(
      Mesh::Create(12, {.pipe = 2, .tensor = 4}).status().message(),
      HasSubstr("the product of pipe 2 x tensor 4 does not divide the world "
                "size 12: start a multiple of 8 ranks"));
  const int large = 1 << 20;
  EXPECT_FALSE(
      Mesh::Create(12, {.pipe = large, .tensor = large, .shard = large}).ok());
  EXPECT_FALSE(Mesh::Create(4, {.pipe = 0}).ok());
  EXPECT_FALSE(Mesh::Create(4, {.tensor = -2}).ok());
  EXPECT_FALSE(Mesh::Create(0, {}).ok());
}

// Awkward degrees, and those of one: replicas are along data and shard.
TEST(MeshTest, ReplicasAreAlongAllSampleAxes) {
  const Mesh mesh =
      *Mesh::Create(2 * 3 * 2 * 5, {.pipe = 2, .tensor = 5, .shard = 3});
  EXPECT_EQ(mesh.ToString(), "data 2 x shard 3 x pipe 2 x tensor 5");
  EXPECT_EQ(mesh.replicas(), 6);
  EXPECT_EQ(mesh.ranks_of_replica(), 10);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    EXPECT_EQ(mesh.ReplicaIndex(rank), rank / 10);
    const std::vector<int> alike = mesh.RanksOfReplicas(rank);
    ASSERT_EQ(alike.size(), 6u);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(alike[i], 10 * i + rank % 10);
  }
  EXPECT_EQ(Mesh::Create(6, {.tensor = 2})->ToString(),
            "data 3 x pipe 1 x tensor 2");
  EXPECT_EQ(Mesh::Create(6, {.shard = 2})->replicas(), 6);
  EXPECT_TRUE(IsSampleAxis(kShardAxis));
  EXPECT_FALSE(IsSampleAxis(kTensorAxis));
}

TEST(MeshTest, AxesThatMakeNoMeshAreRefusedByName) {
  const auto refusal = [](const std::vector<MeshAxis>& axes) {
    const auto mesh = Mesh::Create(axes);
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(mesh.status().message());
  };
  EXPECT_THAT(refusal({{"data", 2}, {"tensor", 0}}),
              HasSubstr("a tensor degree is at least 1, but is 0"));
  EXPECT_THAT(refusal({{"data", 2}, {"data", 3}}),
              HasSubstr("'data' is there twice in data 2 x data 3"));
  EXPECT_THAT(refusal({{"", 2}}), HasSubstr("'' is none"));
  EXPECT_THAT(refusal({{"data", 1 << 16}, {"pipe", 1 << 15}}),
              HasSubstr("data 65536 x pipe 32768 has too many ranks"));
}

// One of the ranks that differ along other axes alone is the first.
TEST(MeshTest, OneRankOfThoseThatHaveTheSameIsTheFirst) {
  const Mesh mesh =
      *Mesh::Create({{"data", 2}, {"pipe", 3}, {"tensor", 5}, {"none", 1}});
  for (const std::vector<absl::string_view>& axes :
       std::vector<std::vector<absl::string_view>>{{},
                                                   {"pipe"},
                                                   {"pipe", "tensor"},
                                                   {"data", "pipe", "tensor"},
                                                   {"unknown", "none"}}) {
    std::vector<absl::string_view> others;
    for (const MeshAxis& each : mesh.axes()) {
      if (std::count(axes.begin(), axes.end(), each.name) == 0) {
        others.push_back(each.name);
      }
    }
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      EXPECT_EQ(mesh.IsFirstBeside(axes, rank),
                mesh.RanksAlong(others, rank).front() == rank);
    }
  }
  EXPECT_TRUE(mesh.IsFirstBeside({"pipe"}, mesh.RankAt({0, 2, 0, 0})));
  EXPECT_FALSE(mesh.IsFirstBeside({"pipe"}, mesh.RankAt({0, 2, 1, 0})));
  EXPECT_FALSE(mesh.IsFirstBeside({"pipe"}, mesh.RankAt({1, 0, 0, 0})));
}

TEST(MeshTest, CoordinatesAndRanksAreInverse) {
  for (const auto& axes : Grids()) {
    const Mesh mesh = *Mesh::Create(axes);
    SCOPED_TRACE(mesh.ToString());
    std::set<Mesh::Coordinates> seen;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const Mesh::Coordinates at = mesh.RankCoordinates(rank);
      EXPECT_EQ(mesh.RankAt(at), rank);
      EXPECT_TRUE(seen.insert(at).second);
      for (size_t i = 0; i < axes.size(); ++i) {
        EXPECT_EQ(mesh.IndexAlong(axes[i].name, rank), at[i]);
        EXPECT_EQ(mesh.degree(axes[i].name), axes[i].degree);
      }
    }
    // Ranks rise with coordinates, the first axis counting most.
    EXPECT_EQ(mesh.RankAt(*seen.begin()), 0);
    EXPECT_EQ(mesh.RankAt(*seen.rbegin()), mesh.world_size() - 1);
  }
}

// Along any set of axes the ranks fall into groups, which share what the other
// axes say.
TEST(MeshTest, EveryRankIsInOneGroupAlongAnyAxes) {
  for (const auto& axes : Grids()) {
    const Mesh mesh = *Mesh::Create(axes);
    SCOPED_TRACE(mesh.ToString());
    for (unsigned subset = 0; subset < 1u << axes.size(); ++subset) {
      std::vector<absl::string_view> along;
      size_t members = 1;
      for (size_t i = 0; i < axes.size(); ++i) {
        if ((subset >> i & 1) == 0) continue;
        along.push_back(axes[i].name);
        members *= static_cast<size_t>(axes[i].degree);
      }
      std::multiset<int> first_seen;
      for (int rank = 0; rank < mesh.world_size(); ++rank) {
        const std::vector<int> group = mesh.RanksAlong(along, rank);
        EXPECT_EQ(group.size(), members);
        for (const int other : group) {
          EXPECT_EQ(mesh.RanksAlong(along, other), group);
          for (size_t i = 0; i < axes.size(); ++i) {
            if ((subset >> i & 1) != 0) continue;
            EXPECT_EQ(mesh.RankCoordinates(other)[i],
                      mesh.RankCoordinates(rank)[i]);
          }
        }
        if (group.front() != rank) continue;
        first_seen.insert(group.begin(), group.end());
      }
      EXPECT_THAT(first_seen, ::testing::ElementsAreArray(AllRanks(mesh)));
    }
  }
}

TEST(MeshTest, AnAxisThatIsNotThereHasOneRank) {
  const Mesh mesh = *Mesh::Create({{"pipe", 3}, {"tensor", 2}});
  EXPECT_EQ(mesh.replicas(), 1);
  EXPECT_EQ(mesh.degree("context"), 1);
  EXPECT_EQ(mesh.IndexAlong(kDataAxis, 4), 0);
  EXPECT_THAT(mesh.RanksAlong({kDataAxis}, 4), ElementsAre(4));
  EXPECT_THAT(mesh.RanksAlong({kDataAxis, "tensor"}, 4), ElementsAre(4, 5));
}

}  // namespace
}  // namespace tandem
