// Sources that contradict each other, or say too little to launch.

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/environment.h"
#include "core/launch/resolve_launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::launch_contradictions_test {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

struct Contradiction {
  const char* name;
  LaunchSettings flags;
  Variables env;
  std::vector<std::string> words;
};

LaunchSettings Flags(void (*set)(LaunchSettings&)) {
  LaunchSettings flags;
  set(flags);
  return flags;
}

class ContradictionTest : public ::testing::TestWithParam<Contradiction> {};

TEST_P(ContradictionTest, IsRefusedWithBothSourcesNamed) {
  const absl::Status error =
      ResolveLaunch(GetParam().flags, Environment(GetParam().env)).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error;
  for (const std::string& word : GetParam().words) {
    EXPECT_THAT(std::string(error.message()), HasSubstr(word));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ContradictionTest,
    ::testing::Values(
        Contradiction{"RankBeyondWorld",
                      {},
                      {{"RANK", "3"}, {"WORLD_SIZE", "2"}},
                      {"RANK=3", "WORLD_SIZE=2", "0 to 1"}},
        Contradiction{"NegativeRank",
                      {},
                      {{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
                      {"RANK=-1", "WORLD_SIZE=2"}},
        Contradiction{"EmptyWorld",
                      {},
                      {{"RANK", "0"}, {"WORLD_SIZE", "0"}},
                      {"WORLD_SIZE=0", "at least 1"}},
        Contradiction{"WorldSizeAlone",
                      {},
                      {{"WORLD_SIZE", "2"}},
                      {"WORLD_SIZE=2", "RANK", "--nproc_per_node"}},
        Contradiction{
            "RankAlone", {}, {{"RANK", "1"}}, {"RANK=1", "WORLD_SIZE"}},
        Contradiction{
            "LocalRankAlone", {}, {{"LOCAL_RANK", "1"}}, {"LOCAL_RANK=1"}},
        Contradiction{"NotANumber",
                      {},
                      {{"RANK", "one"}, {"WORLD_SIZE", "2"}},
                      {"RANK='one'"}},
        Contradiction{"FlagAgainstEnvironment",
                      Flags([](LaunchSettings& f) { f.rank = 0; }),
                      {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
                      {"RANK=1", "--rank=0", "disagree"}},
        Contradiction{
            "NprocAgainstTorchrun",
            Flags([](LaunchSettings& f) { f.nproc_per_node = 4; }),
            {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
            {"LOCAL_WORLD_SIZE=2", "--nproc_per_node=4"}},
        Contradiction{"RankWithNproc",
                      Flags([](LaunchSettings& f) {
                        f.nproc_per_node = 4;
                        f.rank = 0;
                        f.world_size = 2;
                      }),
                      {},
                      {"--rank=0", "--nproc_per_node=4", "--nnodes"}},
        Contradiction{"WorldSizeOfNodes",
                      Flags([](LaunchSettings& f) {
                        f.nproc_per_node = 4;
                        f.world_size = 2;
                      }),
                      {},
                      {"--world_size=2", "--nproc_per_node=4",
                       "processes, not nodes", "--nnodes"}},
        Contradiction{
            "WorldSizeOfNodesInTheEnvironment",
            Flags([](LaunchSettings& f) { f.nproc_per_node = 4; }),
            {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
            {"WORLD_SIZE=2", "--nproc_per_node=4", "processes, not nodes"}},
        Contradiction{"NodesWithoutNodeRank",
                      Flags([](LaunchSettings& f) {
                        f.nnodes = 2;
                        f.nproc_per_node = 1;
                        f.master_addr = "a";
                      }),
                      {},
                      {"--nnodes=2", "--node_rank"}},
        Contradiction{"NodesWithoutMaster",
                      Flags([](LaunchSettings& f) {
                        f.nnodes = 2;
                        f.node_rank = 0;
                      }),
                      {},
                      {"2 nodes", "--master_addr"}},
        Contradiction{"NodeRankBeyondNodes",
                      Flags([](LaunchSettings& f) {
                        f.nnodes = 2;
                        f.node_rank = 2;
                        f.nproc_per_node = 1;
                      }),
                      {},
                      {"--node_rank=2", "--nnodes=2"}},
        Contradiction{"NoProcesses",
                      Flags([](LaunchSettings& f) { f.nproc_per_node = 0; }),
                      {},
                      {"--nproc_per_node=0", "at least 1"}},
        Contradiction{"TooManyRanks",
                      Flags([](LaunchSettings& f) {
                        f.nproc_per_node = 1 << 20;
                        f.nnodes = 1 << 20;
                        f.node_rank = 0;
                      }),
                      {},
                      {"too many"}},
        Contradiction{"NowhereToMeet",
                      {},
                      {{"RANK", "0"}, {"WORLD_SIZE", "2"}},
                      {"rank 0 of 2", "MASTER_ADDR", "MASTER_PORT"}},
        Contradiction{
            "NoPort",
            {},
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
            {"MASTER_PORT"}},
        Contradiction{"PortZero",
                      {},
                      {{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "0"}},
                      {"MASTER_PORT=0"}},
        Contradiction{"UrlAgainstFlag",
                      Flags([](LaunchSettings& f) {
                        f.nproc_per_node = 2;
                        f.dist_url = "tcp://a:1";
                        f.master_port = 2;
                      }),
                      {},
                      {"--dist_url=tcp://a:1", "--master_port=2"}},
        Contradiction{"EnvUrlWithoutEnvironment",
                      Flags([](LaunchSettings& f) { f.dist_url = "env://"; }),
                      {},
                      {"--dist_url=env://", "RANK is not set"}},
        Contradiction{"PlaceDoesNotFit",
                      {},
                      {{"RANK", "3"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "0"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"GROUP_RANK", "1"}},
                      {"RANK=3", "GROUP_RANK=1", "LOCAL_RANK=0", "rank 2"}},
        Contradiction{"UnevenNodesByFlags",
                      Flags([](LaunchSettings& f) {
                        f.rank = 0;
                        f.world_size = 7;
                        f.nnodes = 2;
                      }),
                      {},
                      {"--world_size=7", "--nnodes=2", "evenly"}},
        Contradiction{"MpirunOverNodesWithoutMaster",
                      {},
                      {{"OMPI_COMM_WORLD_RANK", "0"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "job"}},
                      {"rank 0 of 4", "--master_addr"}}),
    [](const ::testing::TestParamInfo<Contradiction>& info) {
      return std::string(info.param.name);
    });

}  // namespace
}  // namespace tandem::launch_contradictions_test
