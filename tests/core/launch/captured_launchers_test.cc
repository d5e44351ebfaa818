// Environments of launchers, replayed.

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/launch/claims.h"
#include "core/launch/launch.h"
#include "core/launch/resolve_launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/launch/resolved_launches.h"

namespace tandem::captured_launchers_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CapturedLaunchersTest, Torchrun) {
  const auto plan = ResolveLaunch({}, Captured("torchrun"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->is_launcher);
  EXPECT_EQ(Place(plan->launch), "1/2 1/2 0/1");
  EXPECT_EQ(plan->launch.launcher, "torchrun");
  EXPECT_EQ(Address(plan->launch), "127.0.0.1:29500");
  EXPECT_TRUE(plan->launch.rendezvous.served_by_launcher);
  EXPECT_EQ(plan->launch.rendezvous.key_prefix, "tandem/attempt_0/");
}

TEST(CapturedLaunchersTest, MpirunAndSrun) {
  for (const auto& [file, launcher] :
       {std::pair("mpirun", "openmpi"), std::pair("srun", "slurm")}) {
    SCOPED_TRACE(file);
    const auto plan = ResolveLaunch({}, Captured(file));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Place(plan->launch), "1/2 1/2 0/1");
    EXPECT_EQ(plan->launch.launcher, launcher);
    EXPECT_EQ(plan->launch.rendezvous.host, "127.0.0.1");
    EXPECT_GE(plan->launch.rendezvous.port, 20000);
    EXPECT_FALSE(plan->launch.rendezvous.served_by_launcher);
  }
}

TEST(CapturedLaunchersTest, FlagsThatAgreeWithTheLauncherAreHeard) {
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  flags.nnodes = 1;
  flags.rank = 1;
  for (const char* launcher : {"torchrun", "mpirun", "srun"}) {
    const auto plan = ResolveLaunch(flags, Captured(launcher));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_FALSE(plan->is_launcher);
  }
}

TEST(CapturedLaunchersTest, MasterPortOverridesTheComputedOne) {
  LaunchSettings flags;
  flags.master_port = 12345;
  flags.master_addr = "10.1.1.1";
  for (const char* launcher : {"mpirun", "srun"}) {
    const auto plan = ResolveLaunch(flags, Captured(launcher));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Address(plan->launch), "10.1.1.1:12345");
  }
  EXPECT_THAT(
      ResolveLaunch(flags, Captured("torchrun")).status().message(),
      AllOf(HasSubstr("MASTER_ADDR=127.0.0.1"),
            HasSubstr("--master_addr=10.1.1.1"), HasSubstr("disagree")));
}

struct Task {
  const char* file;
  const char* launcher;
  int port;
};

class TaskTest : public ::testing::TestWithParam<Task> {};

// And not a job of its own, as each would be that its launcher is unknown to.
TEST_P(TaskTest, IsOneOfTwoRanks) {
  const LaunchPlan plan = Resolve(Captured(GetParam().file));
  EXPECT_FALSE(plan.is_launcher);
  EXPECT_EQ(Place(plan.launch), "1/2 1/2 0/1");
  EXPECT_EQ(plan.launch.launcher, GetParam().launcher);
  EXPECT_EQ(Address(plan.launch), absl::StrCat("127.0.0.1:", GetParam().port));
  EXPECT_FALSE(plan.launch.rendezvous.served_by_launcher);
  EXPECT_TRUE(StartsTasks(plan.launch.launcher));
}

TEST_P(TaskTest, OfSeveralNodesMeetsWhereTheUserSays) {
  Environment env = Captured(GetParam().file);
  const bool is_flux = std::string(GetParam().launcher) == "flux";
  for (const char* size : {"PMI_SIZE", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE",
                           "JSM_NAMESPACE_SIZE"}) {
    if (env.Get(size).has_value()) env.Set(size, "4");
  }
  if (is_flux) env.Set("FLUX_JOB_NNODES", "2");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("rank 1 of 4"), HasSubstr("--master_addr")));
  LaunchSettings flags;
  flags.master_addr = "node0";
  const LaunchPlan plan = Resolve(env, flags);
  EXPECT_EQ(Place(plan.launch), "1/4 1/2 0/2");
  EXPECT_EQ(Address(plan.launch), absl::StrCat("node0:", GetParam().port));
}

TEST_P(TaskTest, ALoneOneMayStartRanks) {
  Environment env = Captured(GetParam().file);
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"PMI_SIZE", "1"},
                                          {"PMI_RANK", "0"},
                                          {"PMI_LOCAL_SIZE", "1"},
                                          {"PMI_LOCAL_RANK", "0"},
                                          {"MPI_LOCALNRANKS", "1"},
                                          {"MPI_LOCALRANKID", "0"},
                                          {"MV2_COMM_WORLD_SIZE", "1"},
                                          {"MV2_COMM_WORLD_RANK", "0"},
                                          {"MV2_COMM_WORLD_LOCAL_SIZE", "1"},
                                          {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                                          {"FLUX_JOB_SIZE", "1"},
                                          {"FLUX_TASK_RANK", "0"},
                                          {"FLUX_TASK_LOCAL_ID", "0"},
                                          {"JSM_NAMESPACE_SIZE", "1"},
                                          {"JSM_NAMESPACE_RANK", "0"},
                                          {"JSM_NAMESPACE_LOCAL_SIZE", "1"},
                                          {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                                          {"PALS_RANKID", "0"},
                                          {"PALS_LOCAL_RANKID", "0"}}) {
    if (env.Get(name).has_value()) env.Set(name, value);
  }
  EXPECT_EQ(Place(Resolve(env).launch), "0/1 0/1 0/1");
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  EXPECT_TRUE(Resolve(env, flags).is_launcher);
}

INSTANTIATE_TEST_SUITE_P(
    All, TaskTest,
    ::testing::Values(Task{"mpich", "mpich", kDefaultMasterPort},
                      Task{"intelmpi", "mpich", kDefaultMasterPort},
                      Task{"mvapich", "mvapich", PortOfJob("17608")},
                      Task{"flux", "flux", PortOfJob("fJ9ZcrLzq")},
                      Task{"jsrun", "jsrun", PortOfJob("17608")},
                      Task{"pmi", "pmi", PortOfJob("17608")},
                      Task{"pals", "pals",
                           PortOfJob("4b0e2a54-7d43-4c0d-9e5e-0f6a1f5d3b2a")}),
    [](const ::testing::TestParamInfo<Task>& info) {
      return std::string(info.param.file);
    });

TEST(CapturedPmixTest, SaysWhatIsNotToldBeforeItIsALoneRank) {
  const Environment env = Captured("pmix");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("PMIX_RANK=1"), HasSubstr("--world_size")));
  LaunchSettings flags;
  flags.world_size = 2;
  EXPECT_THAT(Error(env, flags), AllOf(HasSubstr("--world_size=2"),
                                       HasSubstr("--nproc_per_node")));
  flags.nproc_per_node = 2;
  flags.master_addr = "127.0.0.1";
  const LaunchPlan plan = Resolve(env, flags);
  EXPECT_FALSE(plan.is_launcher);
  EXPECT_EQ(Place(plan.launch), "1/2 1/2 0/1");
}

// PMI itself has a rank and a size; not everybody who speaks it says more.
TEST(CapturedPmiTest, WhatItDoesNotSayIsAskedFor) {
  Environment env = Captured("pmi");
  env.Set("PMI_LOCAL_RANK", "");
  env.Set("PMI_LOCAL_SIZE", "");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("PMI_RANK=1"), HasSubstr("--nproc_per_node")));
  LaunchSettings flags;
  flags.nproc_per_node = 2;
  flags.master_addr = "127.0.0.1";
  const LaunchPlan plan = Resolve(env, flags);
  EXPECT_EQ(plan.launch.launcher, "pmi");
  EXPECT_EQ(Place(plan.launch), "1/2 1/2 0/1");
}

// mpiexec starts its proxies, one a node, with srun.
TEST(CapturedMpichTest, SpeaksWithinAStepOfSlurm) {
  Environment env = Captured("mpich");
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"SLURM_JOB_ID", "5"},
           {"SLURM_STEP_ID", "0"},
           {"SLURM_PROCID", "0"},
           {"SLURM_NTASKS", "1"},
           {"SLURM_NNODES", "1"},
           {"SLURM_LOCALID", "0"},
       }) {
    env.Set(name, value);
  }
  EXPECT_EQ(Place(Resolve(env).launch), "1/2 1/2 0/1");
  EXPECT_EQ(Resolve(env).launch.launcher, "mpich");
}

// srun --mpi=pmi2 sets PMI's as well, without its nodes.
TEST(CapturedSrunTest, SpeaksBesidePmi) {
  Environment env = Captured("srun");
  env.Set("PMI_RANK", "1");
  env.Set("PMI_SIZE", "2");
  env.Set("PMIX_RANK", "1");
  EXPECT_EQ(Resolve(env).launch.launcher, "slurm");
}

TEST(CapturedSrunTest, AHeterogeneousJobIsRefused) {
  Environment env = Captured("srun");
  env.Set("SLURM_HET_SIZE", "1");
  EXPECT_EQ(Resolve(env).launch.launcher, "slurm");
  env.Set("SLURM_HET_SIZE", "2");
  EXPECT_THAT(Error(env),
              AllOf(HasSubstr("SLURM_HET_SIZE=2"), HasSubstr("env -u")));
}

// Flux may have been started by an MPI, and an MPI in a task of Flux.
TEST(CapturedFluxTest, WhoHasStartedSeveralTasksSpeaks) {
  Environment env = Captured("flux");
  env.Set("OMPI_COMM_WORLD_RANK", "0");
  env.Set("OMPI_COMM_WORLD_SIZE", "3");
  env.Set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
  env.Set("OMPI_COMM_WORLD_LOCAL_SIZE", "3");
  EXPECT_EQ(Resolve(env).launch.launcher, "flux");
  env.Set("FLUX_JOB_SIZE", "1");
  env.Set("FLUX_TASK_RANK", "0");
  EXPECT_EQ(Resolve(env).launch.launcher, "openmpi");
  EXPECT_EQ(Place(Resolve(env).launch), "0/3 0/3 0/1");
}

}  // namespace
}  // namespace tandem::captured_launchers_test
