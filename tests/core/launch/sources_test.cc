#include "core/launch/sources.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/launch/claims.h"
#include "core/launch/launch.h"
#include "core/launch/resolve_launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/resolved_launches.h"

namespace tandem::sources_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseTasksPerNodeTest, ReadsSlurmsSyntax) {
  EXPECT_THAT(*ParseTasksPerNode("2"), ElementsAre(2));
  EXPECT_THAT(*ParseTasksPerNode("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ParseTasksPerNode("1,3(x2)"), ElementsAre(1, 3, 3));
}

TEST(ParseTasksPerNodeTest, RefusesOtherText) {
  for (const char* text : {"", "x", "2(3)", "2(x)", "2(x3", "2,", "2(x0)"}) {
    EXPECT_FALSE(ParseTasksPerNode(text).ok()) << text;
  }
}

TEST(FirstHostTest, ExpandsTheFirstOfEachRange) {
  EXPECT_EQ(FirstHost("node1"), "node1");
  EXPECT_EQ(FirstHost("a,b"), "a");
  EXPECT_EQ(FirstHost("gpu[03-07,9],cpu1"), "gpu03");
  EXPECT_EQ(FirstHost("r[2,4]n[10-11].site"), "r2n10.site");
  EXPECT_EQ(FirstHost(""), "");
}

TEST(PortOfJobTest, StaysInItsRangeAndSpreads) {
  std::set<int> ports;
  for (int job = 0; job < 1000; ++job) {
    const int port = PortOfJob(std::to_string(job) + ".0");
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 30000);
    ports.insert(port);
  }
  EXPECT_GT(ports.size(), 900u);
  // Part of what is promised to users: ranks of two builds must agree.
  EXPECT_EQ(PortOfJob(""), 20000 + 2166136261u % 10000);
}

TEST(ClaimsOfSlurmTest, AJobWithoutAStepClaimsNothing) {
  const Environment script({{"SLURM_JOB_ID", "3"},
                            {"SLURM_NTASKS", "2"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_TASKS_PER_NODE", "2"}});
  const auto claims = ClaimsOfSlurm(script);
  ASSERT_TRUE(claims.ok());
  EXPECT_EQ(claims->launcher, "none");
  EXPECT_FALSE(claims->rank.has_value());
}

TEST(ClaimsOfSlurmTest, TheFirstNodeOfTheStepIsTheMaster) {
  const Environment task({{"SLURM_JOB_ID", "3"},
                          {"SLURM_STEP_ID", "1"},
                          {"SLURM_PROCID", "4"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_NNODES", "4"},
                          {"SLURM_STEP_NODELIST", "n[05-08]"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.99"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}});
  const auto claims = ClaimsOfSlurm(task);
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->default_master_addr, "n05");
  EXPECT_EQ(claims->default_master_port, PortOfJob("3.1"));
  EXPECT_EQ(claims->local_world_size->value, 2);
}

TEST(ClaimsOfSlurmTest, TasksPerNodeErrorsNameTheVariable) {
  const Environment task({{"SLURM_STEP_ID", "1"},
                          {"SLURM_PROCID", "4"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_TASKS_PER_NODE", "2,2"}});
  EXPECT_THAT(ClaimsOfSlurm(task).status().message(),
              HasSubstr("SLURM_NODEID=2 is not among the 2 nodes of "
                        "SLURM_TASKS_PER_NODE=2,2"));
}

TEST(ClaimsOfEnvironmentTest, NodeRankIsNotTakenForTheNodesNumber) {
  const Environment process({{"OMPI_COMM_WORLD_RANK", "3"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"OMPI_COMM_WORLD_NODE_RANK", "1"}});
  const auto claims = ClaimsOfEnvironment(process);
  ASSERT_TRUE(claims.ok());
  EXPECT_FALSE(claims->node_rank.has_value());
  EXPECT_EQ(claims->default_master_addr, "");
}

// What Kubernetes' operators set in a pod.

using Variables = std::map<std::string, std::string>;

std::string Describe(const LaunchPlan& plan) {
  return absl::StrCat(plan.is_launcher ? "launcher" : "rank", " ",
                      Place(plan.launch), " at ", Address(plan.launch));
}

TEST(PodSettingsTest, APodOfSeveralRanksIsANode) {
  EXPECT_EQ(Describe(Resolve(Captured("pytorchjob"))),
            "launcher 2/4 0/2 1/2 at job-master-0:23456");
  EXPECT_EQ(Describe(Resolve(Captured("trainjob"))),
            "launcher 2/4 0/2 1/2 at job-node-0-0.job:29500");
}

TEST(PodSettingsTest, FlagsGoBeforeThem) {
  LaunchSettings flags;
  flags.nproc_per_node = 3;
  EXPECT_EQ(Describe(Resolve(Captured("trainjob"), flags)),
            "launcher 3/6 0/3 1/2 at job-node-0-0.job:29500");
  Environment env = Captured("pytorchjob");
  env.Set("PET_NPROC_PER_NODE", "auto");  // the operator's default
  env.Set("WORLD_SIZE", "2");
  EXPECT_EQ(Describe(Resolve(env, flags)),
            "launcher 3/6 0/3 1/2 at job-master-0:23456");
}

TEST(PodSettingsTest, APodsOnlyRankIsTheFirstOfItsNode) {
  Environment env = Captured("pytorchjob");
  env.Set("PET_NPROC_PER_NODE", "auto");
  env.Set("WORLD_SIZE", "2");
  EXPECT_EQ(Describe(Resolve(env)), "rank 1/2 0/1 1/2 at job-master-0:23456");
  LaunchSettings flags;
  flags.max_restarts = 2;
  EXPECT_EQ(Describe(Resolve(env, flags)),
            "launcher 1/2 0/1 1/2 at job-master-0:23456");
}

TEST(PodSettingsTest, RanksOfALauncherInThePodAreThatLaunchers) {
  Environment env = Captured("pytorchjob");
  for (const auto& [name, value] : Variables{{"TANDEM_LAUNCHER", "1"},
                                             {"RANK", "3"},
                                             {"WORLD_SIZE", "4"},
                                             {"LOCAL_RANK", "1"},
                                             {"LOCAL_WORLD_SIZE", "2"},
                                             {"GROUP_RANK", "1"},
                                             {"GROUP_WORLD_SIZE", "2"}}) {
    env.Set(name, value);
  }
  EXPECT_EQ(Describe(Resolve(env)), "rank 3/4 1/2 1/2 at job-master-0:23456");
}

TEST(PodSettingsTest, WhatTorchrunAloneDoesIsRefusedByName) {
  Environment env = Captured("trainjob");
  env.Set("PET_NPROC_PER_NODE", "gpu");
  EXPECT_THAT(Error(env), AllOf(HasSubstr("PET_NPROC_PER_NODE=gpu"),
                                HasSubstr("--nproc_per_node")));
  env = Captured("trainjob");
  env.Set("PET_NNODES", "1:3");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("PET_NNODES=1:3"), HasSubstr("--min_ranks")));
  env.Set("PET_NNODES", "2:2");
  EXPECT_TRUE(Resolve(env).is_launcher);
  env = Captured("trainjob");
  env.Set("PET_NODE_RANK", "");  // meets by torchrun's c10d
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("--node_rank"), HasSubstr("PET_NNODES=2")));
  env = Captured("pytorchjob");
  env.Set("PET_NODE_RANK", "0");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("RANK=1"), HasSubstr("PET_NODE_RANK=0")));
}

// An older operator sets RANK and WORLD_SIZE alone.
TEST(PodSettingsTest, PodsThatAreCountedAreNotTakenForRanks) {
  const Environment env({{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "job-master-0"},
                         {"MASTER_PORT", "23456"}});
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  EXPECT_THAT(Error(env, flags),
              AllOf(HasSubstr("RANK=1"), HasSubstr("WORLD_SIZE=2"),
                    HasSubstr("--nproc_per_node=2"), HasSubstr("PyTorchJob")));
  flags.nproc_per_node = 1;
  EXPECT_FALSE(Resolve(env, flags).is_launcher);
}

TEST(PodSettingsTest, TheMastersLocalhostIsRefusedInAPod) {
  Environment env({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "localhost"},
                   {"MASTER_PORT", "23456"}});
  EXPECT_EQ(Describe(Resolve(env)), "rank 0/2 0/2 0/1 at localhost:23456");
  env.Set("KUBERNETES_SERVICE_HOST", "10.96.0.1");
  EXPECT_THAT(Error(env), AllOf(HasSubstr("MASTER_ADDR=localhost"),
                                HasSubstr("hostname -i")));
  env.Set("MASTER_ADDR", "127.0.0.1");
  EXPECT_EQ(Describe(Resolve(env)), "rank 0/2 0/2 0/1 at 127.0.0.1:23456");
}

TEST(PodSettingsTest, TheMastersLocalhostIsRefusedWhereItsPodsAreCounted) {
  Environment env({{"RANK", "0"},
                   {"WORLD_SIZE", "4"},
                   {"MASTER_ADDR", "localhost"},
                   {"MASTER_PORT", "23456"},
                   {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                   {"PET_NNODES", "2"},
                   {"PET_NODE_RANK", "0"}});
  // One rank in each of two pods, and two.
  for (const auto& [ranks, world] : Variables{{"1", "2"}, {"2", "4"}}) {
    env.Set("PET_NPROC_PER_NODE", ranks);
    env.Set("WORLD_SIZE", world);
    EXPECT_THAT(Error(env), AllOf(HasSubstr("MASTER_ADDR=localhost"),
                                  HasSubstr("hostname -i")));
  }
  env.Set("MASTER_ADDR", "127.0.0.1");
  EXPECT_EQ(Describe(Resolve(env)), "launcher 0/4 0/2 0/2 at 127.0.0.1:23456");
  // A pod that is alone.
  env.Set("MASTER_ADDR", "localhost");
  env.Set("PET_NNODES", "1");
  env.Set("WORLD_SIZE", "2");
  EXPECT_EQ(Describe(Resolve(env)), "launcher 0/2 0/2 0/1 at localhost:23456");
}

}  // namespace
}  // namespace tandem::sources_test
