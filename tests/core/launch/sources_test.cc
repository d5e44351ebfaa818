#include "core/launch/sources.h"

#include <set>
#include <string>

#include "core/launch/claims.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::sources_test {
namespace {

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

}  // namespace
}  // namespace tandem::sources_test
