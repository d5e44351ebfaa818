#include "core/run/secret_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "core/launch/resolve_launch.h"
#include "core/store/guard/job_secret.h"
#include "core/testing/statuses.h"

namespace tandem {
namespace {

constexpr char kVariable[] = "TANDEM_JOB_SECRET_FILE";

LaunchPlan Plan(bool is_launcher, int nnodes, Rendezvous::Kind kind) {
  LaunchPlan plan;
  plan.is_launcher = is_launcher;
  plan.launch.nnodes = nnodes;
  plan.launch.rendezvous.kind = kind;
  return plan;
}

const LaunchPlan kRank = Plan(false, 1, Rendezvous::Kind::kTcp);

class SecretSetupTest : public ::testing::Test {
 protected:
  SecretSetupTest() {
    unsetenv(kVariable);
    SetJobSecret("");
  }
  static std::string File(const std::string& name) {
    const std::string path = ::testing::TempDir() + "/" + name;
    std::ofstream(path) << "the secret in " << name;
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }
};

TEST_F(SecretSetupTest, ByFlagOrVariable) {
  ASSERT_TRUE(UseJobSecret(kRank, File("one")).ok());
  EXPECT_EQ(JobSecret(), "the secret in one");
  // A further call does nothing.
  ASSERT_TRUE(UseJobSecret(kRank, File("two")).ok());
  EXPECT_EQ(JobSecret(), "the secret in one");
  SetJobSecret("");
  setenv(kVariable, File("two").c_str(), 1);
  ASSERT_TRUE(UseJobSecret(kRank, "").ok());
  EXPECT_EQ(JobSecret(), "the secret in two");
}

TEST_F(SecretSetupTest, BothMustAgree) {
  setenv(kVariable, File("one").c_str(), 1);
  EXPECT_TRUE(UseJobSecret(kRank, File("one")).ok());
  SetJobSecret("");
  EXPECT_THAT(UseJobSecret(kRank, File("two")),
              InvalidArgument("--job_secret_file=", "TANDEM_JOB_SECRET_FILE="));
  EXPECT_EQ(JobSecret(), "");
}

TEST_F(SecretSetupTest, ALauncherOfAllRanksMakesOne) {
  ASSERT_TRUE(UseJobSecret(Plan(true, 1, Rendezvous::Kind::kTcp), "").ok());
  EXPECT_EQ(JobSecret(), ReadSecretFile(std::getenv(kVariable)).value());
}

TEST_F(SecretSetupTest, NobodyElseDoes) {
  for (const LaunchPlan& plan : {kRank, Plan(true, 2, Rendezvous::Kind::kTcp),
                                 Plan(true, 1, Rendezvous::Kind::kFile)}) {
    EXPECT_TRUE(UseJobSecret(plan, "").ok());
    EXPECT_EQ(JobSecret(), "");
    EXPECT_EQ(std::getenv(kVariable), nullptr);
  }
}

TEST_F(SecretSetupTest, WhereNoneIsAskedForItIsRefused) {
  LaunchPlan torchrun = kRank;
  torchrun.launch.launcher = "torchrun";
  torchrun.launch.rendezvous.served_by_launcher = true;
  for (const LaunchPlan& plan :
       {torchrun, Plan(false, 1, Rendezvous::Kind::kFile)}) {
    EXPECT_THAT(UseJobSecret(plan, File("one")),
                InvalidArgument("leave it out"));
    EXPECT_EQ(JobSecret(), "");
  }
}

}  // namespace
}  // namespace tandem
