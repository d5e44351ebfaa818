#include "core/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mesh MakeMesh(int world_size, int pipe) {
  return Mesh::Create(world_size, pipe).value();
}

std::string Strategy(int world_size, int pipe, int devices,
                     const std::string& requested = "") {
  return StrategyFor(MakeMesh(world_size, pipe), devices, requested).value();
}

std::string Refusal(int world_size, int pipe, int devices,
                    const std::string& requested) {
  const auto got = StrategyFor(MakeMesh(world_size, pipe), devices, requested);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(got.status().message());
}

TEST(MeshTest, PipeIsFastest) {
  const Mesh mesh = MakeMesh(6, 3);
  EXPECT_EQ(mesh.data(), 2);
  EXPECT_EQ(mesh.ToString(), "data 2 x pipe 3");
  EXPECT_THAT(mesh.RanksAlongPipe(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(mesh.RanksAlongPipe(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(mesh.RanksAlongData(0), ElementsAre(0, 3));
  EXPECT_THAT(mesh.RanksAlongData(2), ElementsAre(2, 5));
}

TEST(MeshTest, OneRankByDefault) {
  const Mesh mesh;
  EXPECT_EQ(mesh.world_size(), 1);
  EXPECT_THAT(mesh.RanksAlongData(0), ElementsAre(0));
  EXPECT_THAT(mesh.RanksAlongPipe(0), ElementsAre(0));
}

TEST(MeshTest, EveryDegreeDividesOrIsRefusedByName) {
  for (int world = 1; world <= 24; ++world) {
    for (int pipe = 1; pipe <= 24; ++pipe) {
      const auto mesh = Mesh::Create(world, pipe);
      EXPECT_EQ(mesh.ok(), world % pipe == 0) << world << " " << pipe;
      if (!mesh.ok()) continue;
      EXPECT_EQ(mesh->world_size(), world);
      EXPECT_EQ(mesh->data() * mesh->pipe(), world);
    }
  }
  EXPECT_THAT(Mesh::Create(4, 3).status().message(),
              HasSubstr("pipe degree 3 does not divide the world size 4:"));
  EXPECT_FALSE(Mesh::Create(4, 0).ok());
  EXPECT_FALSE(Mesh::Create(4, -2).ok());
  EXPECT_FALSE(Mesh::Create(0, 1).ok());
}

TEST(MeshTest, CoordinatesAndRanksAreInverse) {
  for (int world = 1; world <= 24; ++world) {
    for (int pipe = 1; pipe <= world; ++pipe) {
      if (world % pipe != 0) continue;
      const Mesh mesh = MakeMesh(world, pipe);
      for (int rank = 0; rank < world; ++rank) {
        EXPECT_EQ(mesh.RankAt(mesh.CoordinatesOf(rank)), rank);
      }
    }
  }
}

TEST(MeshTest, EachAxisVisitsEveryRankOnce) {
  for (const int pipe : {1, 2, 3, 4, 6, 12}) {
    const Mesh mesh = MakeMesh(12, pipe);
    std::multiset<int> along_data, along_pipe;
    for (int stage = 0; stage < pipe; ++stage) {
      for (int rank : mesh.RanksAlongData(stage)) {
        along_data.insert(rank);
        EXPECT_EQ(mesh.CoordinatesOf(rank).pipe, stage);
      }
    }
    for (int replica = 0; replica < mesh.data(); ++replica) {
      for (int rank : mesh.RanksAlongPipe(replica)) {
        along_pipe.insert(rank);
        EXPECT_EQ(mesh.CoordinatesOf(rank).data, replica);
      }
    }
    const std::vector<int> every = MakeMesh(12, 12).RanksAlongPipe(0);
    EXPECT_THAT(along_data, ::testing::ElementsAreArray(every));
    EXPECT_THAT(along_pipe, ::testing::ElementsAreArray(every));
  }
}

TEST(StrategyForTest, FollowsFromTheMesh) {
  EXPECT_EQ(Strategy(1, 1, 1), "single");
  EXPECT_EQ(Strategy(2, 1, 1), "ddp");
  EXPECT_EQ(Strategy(7, 1, 1), "ddp");
  EXPECT_EQ(Strategy(2, 1, 2), "ddp");
  EXPECT_EQ(Strategy(1, 1, 2), "model_parallel");
  EXPECT_EQ(Strategy(2, 2, 1), "pipeline");
  EXPECT_EQ(Strategy(2, 2, 2), "pipeline");
  EXPECT_EQ(Strategy(4, 2, 1), "hybrid");
  EXPECT_EQ(Strategy(4, 2, 2), "hybrid");
  EXPECT_EQ(Strategy(2, 1, 1, "auto"), "ddp");
}

// Which of the five take each mesh: ranks, pipe degree, devices per rank.
TEST(StrategyForTest, ARequestThatFitsIsTakenAndNoOther) {
  const std::map<std::vector<int>, std::set<std::string>> fitting = {
      {{1, 1, 1}, {"single", "ddp", "hybrid"}},
      {{3, 1, 1}, {"ddp", "hybrid"}},
      {{1, 1, 2}, {"ddp", "model_parallel", "pipeline", "hybrid"}},
      {{2, 1, 2}, {"ddp", "hybrid"}},
      {{2, 2, 1}, {"pipeline", "hybrid"}},
      {{2, 2, 2}, {"pipeline", "hybrid"}},
      {{4, 2, 1}, {"hybrid"}},
      {{4, 2, 2}, {"hybrid"}},
  };
  for (const auto& [mesh, names] : fitting) {
    const std::string usual = Strategy(mesh[0], mesh[1], mesh[2]);
    EXPECT_EQ(names.count(usual), 1u) << usual;
    for (const std::string name :
         {"single", "ddp", "model_parallel", "pipeline", "hybrid"}) {
      if (names.count(name) > 0) {
        EXPECT_EQ(Strategy(mesh[0], mesh[1], mesh[2], name), name);
      } else {
        EXPECT_THAT(Refusal(mesh[0], mesh[1], mesh[2], name),
                    AllOf(HasSubstr("strategy " + name),
                          HasSubstr("use " + usual + ",")));
      }
    }
  }
}

TEST(StrategyForTest, AContradictionNamesBothSides) {
  EXPECT_THAT(Refusal(2, 1, 1, "single"),
              AllOf(HasSubstr("the strategy single runs one replica"),
                    HasSubstr("data 2 x pipe 1, devices per rank 1")));
}

TEST(StrategyForTest, AnUnknownNameListsTheKnown) {
  EXPECT_THAT(
      Refusal(1, 1, 1, "zero"),
      HasSubstr("single, ddp, model_parallel, pipeline, hybrid (or auto)"));
  EXPECT_FALSE(StrategyFor(Mesh(), 0, "").ok());
}

}  // namespace
}  // namespace tandem
