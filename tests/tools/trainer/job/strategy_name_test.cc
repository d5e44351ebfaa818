#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/trainer/job/job.h"

namespace tandem::strategy_name_test {
namespace {

using ::testing::AllOf;
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

// Which of the six take each mesh: ranks, pipe degree, devices per rank.
TEST(StrategyForTest, ARequestThatFitsIsTakenAndNoOther) {
  const std::map<std::vector<int>, std::set<std::string>> fitting = {
      {{1, 1, 1}, {"single", "ddp", "hybrid", "parameter_server"}},
      {{3, 1, 1}, {"ddp", "hybrid", "parameter_server"}},
      {{1, 1, 2},
       {"ddp", "data_parallel", "model_parallel", "pipeline", "hybrid",
        "parameter_server"}},
      {{2, 1, 2}, {"ddp", "data_parallel", "hybrid", "parameter_server"}},
      {{2, 2, 1}, {"pipeline", "hybrid"}},
      {{2, 2, 2}, {"pipeline", "hybrid"}},
      {{4, 2, 1}, {"hybrid"}},
      {{4, 2, 2}, {"hybrid"}},
  };
  for (const auto& [mesh, names] : fitting) {
    const std::string usual = Strategy(mesh[0], mesh[1], mesh[2]);
    EXPECT_EQ(names.count(usual), 1u) << usual;
    for (const std::string name :
         {"single", "ddp", "data_parallel", "model_parallel", "pipeline",
          "hybrid", "parameter_server"}) {
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
  EXPECT_THAT(Refusal(1, 1, 1, "zero"),
              HasSubstr("single, ddp, data_parallel, model_parallel, pipeline, "
                        "hybrid, parameter_server (or auto)"));
  EXPECT_FALSE(StrategyFor(Mesh(), 0, "").ok());
}

}  // namespace
}  // namespace tandem::strategy_name_test
