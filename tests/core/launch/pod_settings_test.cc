// What Kubernetes' operators set in a pod.

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/launch/launch.h"
#include "core/launch/resolve_launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::pod_settings_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment Pod(const std::string& operator_name) {
  std::ifstream file(
      absl::StrCat("tests/core/launch/env/", operator_name, ".env"));
  EXPECT_TRUE(file.good()) << operator_name;
  std::stringstream text;
  text << file.rdbuf();
  const auto env = Environment::Parse(text.str());
  EXPECT_TRUE(env.ok()) << env.status();
  return *env;
}

LaunchPlan Resolve(const Environment& env, const LaunchSettings& flags = {}) {
  const auto plan = ResolveLaunch(flags, env);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : LaunchPlan{};
}

std::string Error(const Environment& env, const LaunchSettings& flags = {}) {
  const absl::Status error = ResolveLaunch(flags, env).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error;
  return std::string(error.message());
}

std::string Describe(const LaunchPlan& plan) {
  const Launch& launch = plan.launch;
  return absl::StrCat(plan.is_launcher ? "launcher" : "rank", " ", launch.rank,
                      "/", launch.world_size, " ", launch.local_rank, "/",
                      launch.local_world_size, " ", launch.node_rank, "/",
                      launch.nnodes, " at ", launch.rendezvous.host, ":",
                      launch.rendezvous.port);
}

TEST(PodSettingsTest, APodOfSeveralRanksIsANode) {
  EXPECT_EQ(Describe(Resolve(Pod("pytorchjob"))),
            "launcher 2/4 0/2 1/2 at job-master-0:23456");
  EXPECT_EQ(Describe(Resolve(Pod("trainjob"))),
            "launcher 2/4 0/2 1/2 at job-node-0-0.job:29500");
}

TEST(PodSettingsTest, FlagsGoBeforeThem) {
  LaunchSettings flags;
  flags.nproc_per_node = 3;
  EXPECT_EQ(Describe(Resolve(Pod("trainjob"), flags)),
            "launcher 3/6 0/3 1/2 at job-node-0-0.job:29500");
  Environment env = Pod("pytorchjob");
  env.Set("PET_NPROC_PER_NODE", "auto");  // the operator's default
  env.Set("WORLD_SIZE", "2");
  EXPECT_EQ(Describe(Resolve(env, flags)),
            "launcher 3/6 0/3 1/2 at job-master-0:23456");
}

TEST(PodSettingsTest, APodsOnlyRankIsTheFirstOfItsNode) {
  Environment env = Pod("pytorchjob");
  env.Set("PET_NPROC_PER_NODE", "auto");
  env.Set("WORLD_SIZE", "2");
  EXPECT_EQ(Describe(Resolve(env)), "rank 1/2 0/1 1/2 at job-master-0:23456");
  LaunchSettings flags;
  flags.max_restarts = 2;
  EXPECT_EQ(Describe(Resolve(env, flags)),
            "launcher 1/2 0/1 1/2 at job-master-0:23456");
}

TEST(PodSettingsTest, RanksOfALauncherInThePodAreThatLaunchers) {
  Environment env = Pod("pytorchjob");
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
  Environment env = Pod("trainjob");
  env.Set("PET_NPROC_PER_NODE", "gpu");
  EXPECT_THAT(Error(env), AllOf(HasSubstr("PET_NPROC_PER_NODE=gpu"),
                                HasSubstr("--nproc_per_node")));
  env = Pod("trainjob");
  env.Set("PET_NNODES", "1:3");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("PET_NNODES=1:3"), HasSubstr("--min_ranks")));
  env.Set("PET_NNODES", "2:2");
  EXPECT_TRUE(Resolve(env).is_launcher);
  env = Pod("trainjob");
  env.Set("PET_NODE_RANK", "");  // meets by torchrun's c10d
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("--node_rank"), HasSubstr("PET_NNODES=2")));
  env = Pod("pytorchjob");
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
}  // namespace tandem::pod_settings_test
