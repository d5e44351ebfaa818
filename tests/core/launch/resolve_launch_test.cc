#include "core/launch/resolve_launch.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/launch/launch.h"
#include "core/launch/rank_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/resolved_launches.h"

namespace tandem::resolve_launch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchPlan Resolve(const LaunchSettings& flags, const Variables& env) {
  return tandem::Resolve(Environment(env), flags);
}

std::string Error(const LaunchSettings& flags, const Variables& env) {
  return tandem::Error(Environment(env), flags);
}

TEST(LaunchTest, RankArithmetic) {
  EXPECT_EQ(GridWorldSize(3, 7), 21);
  EXPECT_EQ(GridRank(2, 7, 6), 20);
  EXPECT_EQ(GridRank(0, 1, 0), 0);
  std::vector<int> ranks;
  for (int node = 0; node < 3; ++node) {
    for (int local = 0; local < 5; ++local) {
      ranks.push_back(GridRank(node, 5, local));
    }
  }
  for (int i = 0; i < GridWorldSize(3, 5); ++i) EXPECT_EQ(ranks[i], i);
}

TEST(ResolveLaunchTest, NothingSaidIsOneRank) {
  const LaunchPlan plan = Resolve({}, {});
  EXPECT_FALSE(plan.is_launcher);
  EXPECT_EQ(Place(plan.launch), "0/1 0/1 0/1");
  EXPECT_EQ(plan.launch.launcher, "none");
  EXPECT_EQ(plan.launch.rendezvous.kind, Rendezvous::Kind::kNone);
}

TEST(ResolveLaunchTest, NprocPerNodeMakesALauncher) {
  LaunchSettings flags;
  flags.nproc_per_node = 3;
  const LaunchPlan plan = Resolve(flags, {});
  EXPECT_TRUE(plan.is_launcher);
  EXPECT_EQ(Place(plan.launch), "0/3 0/3 0/1");
  EXPECT_EQ(Address(plan.launch), "127.0.0.1:0");
  EXPECT_TRUE(plan.launch.rendezvous.served_by_launcher);
}

TEST(ResolveLaunchTest, AnIpv6AddressMayStandInBrackets) {
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  flags.master_addr = "[::1]";
  EXPECT_EQ(Resolve(flags, {}).launch.rendezvous.host, "::1");
  const Variables env = {{"MASTER_ADDR", "::1"}};  // the same one
  EXPECT_EQ(Resolve(flags, env).launch.rendezvous.host, "::1");
  EXPECT_EQ(Resolve({}, {{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "[fe80::1]"},
                         {"MASTER_PORT", "5"}})
                .launch.rendezvous.host,
            "fe80::1");
}

TEST(ResolveLaunchTest, TorchrunsOwnStoreAloneMayBeOnAllInterfaces) {
  Variables env = {{"RANK", "1"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "0.0.0.0"},
                   {"MASTER_PORT", "5"},
                   {"LOCAL_RANK", "1"},
                   {"LOCAL_WORLD_SIZE", "2"},
                   {"TORCHELASTIC_RUN_ID", "x"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ(Address(Resolve({}, env).launch), "0.0.0.0:5");
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 serves it
  EXPECT_THAT(Error({}, env), HasSubstr("stands for all interfaces"));
  env.erase("TORCHELASTIC_RUN_ID");  // by hand
  EXPECT_THAT(Error({}, env), HasSubstr("stands for all interfaces"));
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  flags.master_addr = "[::]";
  EXPECT_THAT(Error(flags, {}), HasSubstr("\"::\" stands for all interfaces"));
}

TEST(ResolveLaunchTest, OneProcessNeedsNoLauncher) {
  LaunchSettings flags;
  flags.nproc_per_node = 1;
  EXPECT_FALSE(Resolve(flags, {}).is_launcher);
}

TEST(ResolveLaunchTest, NodesMeetAtTheMaster) {
  LaunchSettings flags;
  flags.nnodes = 2;
  flags.node_rank = 1;
  flags.nproc_per_node = 4;
  flags.master_addr = "node0";
  const LaunchPlan plan = Resolve(flags, {});
  EXPECT_TRUE(plan.is_launcher);
  EXPECT_EQ(Place(plan.launch), "4/8 0/4 1/2");
  EXPECT_EQ(Address(plan.launch), "node0:29500");
  flags.master_addr.reset();
  EXPECT_EQ(Address(Resolve(flags,
                            {{"MASTER_ADDR", "node9"}, {"MASTER_PORT", "1234"}})
                        .launch),
            "node9:1234");
  flags.dist_url = "tcp://node7:77";
  EXPECT_EQ(Address(Resolve(flags, {}).launch), "node7:77");
}

TEST(ResolveLaunchTest, ALoneTaskMayStartRanks) {
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  const Variables shell = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"},
                           {"SLURM_NTASKS", "1"},  {"SLURM_JOB_ID", "5"},
                           {"SLURM_NNODES", "1"},  {"SLURM_LOCALID", "0"}};
  EXPECT_TRUE(Resolve(flags, shell).is_launcher);
  EXPECT_EQ(Place(Resolve({}, shell).launch), "0/1 0/1 0/1");
}

TEST(ResolveLaunchTest, AJobWithoutAStepMayStartRanks) {
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  EXPECT_TRUE(Resolve(flags, {{"SLURM_JOB_ID", "5"},
                              {"SLURM_NTASKS", "2"},
                              {"SLURM_PROCID", "0"}})
                  .is_launcher);
}

TEST(ResolveLaunchTest, RanksByFlags) {
  LaunchSettings flags;
  flags.rank = 1;
  flags.world_size = 2;
  flags.dist_url = "file:///tmp/store";
  const LaunchPlan plan = Resolve(flags, {});
  EXPECT_FALSE(plan.is_launcher);
  EXPECT_EQ(Place(plan.launch), "1/2 1/2 0/1");
  EXPECT_EQ(plan.launch.launcher, "flags");
  EXPECT_EQ(plan.launch.rendezvous.kind, Rendezvous::Kind::kFile);
  EXPECT_EQ(plan.launch.rendezvous.path, "/tmp/store");
  flags.nnodes = 2;
  EXPECT_EQ(Place(Resolve(flags, {}).launch), "1/2 0/1 1/2");
}

TEST(ResolveLaunchTest, RanksByHandInTheEnvironment) {
  const LaunchPlan plan = Resolve({}, {{"RANK", "3"},
                                       {"WORLD_SIZE", "4"},
                                       {"LOCAL_RANK", "1"},
                                       {"LOCAL_WORLD_SIZE", "2"},
                                       {"MASTER_ADDR", "a"},
                                       {"MASTER_PORT", "5"}});
  EXPECT_EQ(Place(plan.launch), "3/4 1/2 1/2");
  EXPECT_EQ(plan.launch.launcher, "environment");
  EXPECT_FALSE(plan.launch.rendezvous.served_by_launcher);
  EXPECT_EQ(plan.launch.rendezvous.key_prefix, "");
}

TEST(ResolveLaunchTest, SlurmsUnevenNodesAndCyclicRanks) {
  Variables task = {{"SLURM_STEP_ID", "0"},
                    {"SLURM_JOB_ID", "5"},
                    {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                    {"SLURM_STEP_NODELIST", "n[1-4]"},
                    {"SLURM_NTASKS", "7"},
                    {"SLURM_NNODES", "4"},
                    {"SLURM_PROCID", "6"},
                    {"SLURM_NODEID", "3"},
                    {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(Place(Resolve({}, task).launch), "6/7 0/1 3/4");
  task["SLURM_STEP_TASKS_PER_NODE"] = "2(x2)";
  task["SLURM_NTASKS"] = "4";
  task["SLURM_NNODES"] = "2";
  task["SLURM_PROCID"] = "1";  // dealt out in turn: rank 1 is on node 1
  task["SLURM_NODEID"] = "1";
  EXPECT_EQ(Place(Resolve({}, task).launch), "1/4 0/2 1/2");
}

TEST(ResolveLaunchTest, TorchrunInsideASlurmTaskSpeaks) {
  Variables env = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "2"},  {"TORCHELASTIC_RUN_ID", "x"},
                   {"RANK", "2"},          {"WORLD_SIZE", "4"},
                   {"LOCAL_RANK", "0"},    {"LOCAL_WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "a"},   {"MASTER_PORT", "5"}};
  EXPECT_EQ(Place(Resolve({}, env).launch), "2/4 0/2 1/2");
  env.erase("TORCHELASTIC_RUN_ID");  // by hand: it must agree
  EXPECT_THAT(Error({}, env),
              AllOf(HasSubstr("SLURM_NTASKS=2"), HasSubstr("WORLD_SIZE=4")));
}

TEST(ResolveLaunchTest, TheLaunchersEnvironmentResolvesToItsRanks) {
  LaunchSettings flags;
  flags.nnodes = 2;
  flags.node_rank = 1;
  flags.nproc_per_node = 3;
  flags.master_addr = "10.0.0.1";
  const LaunchPlan plan = Resolve(flags, {});
  for (int local_rank = 0; local_rank < 3; ++local_rank) {
    const Environment env =
        EnvironmentOfRank(plan, local_rank, 29500, Environment());
    const auto rank = ResolveLaunch(flags, env);
    ASSERT_TRUE(rank.ok()) << rank.status();
    EXPECT_FALSE(rank->is_launcher);
    EXPECT_EQ(Place(rank->launch),
              absl::StrCat(3 + local_rank, "/6 ", local_rank, "/3 1/2"));
    EXPECT_EQ(rank->launch.launcher, "tandem");
    EXPECT_TRUE(rank->launch.rendezvous.served_by_launcher);
    EXPECT_EQ(Address(rank->launch), "10.0.0.1:29500");
  }
}

}  // namespace
}  // namespace tandem::resolve_launch_test
