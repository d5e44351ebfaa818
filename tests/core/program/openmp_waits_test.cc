// This program starts itself anew as one on a busy machine does.

#include "core/program/openmp_waits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace tandem {
namespace {

constexpr MachineLoad kBusy = {4, 4};
constexpr char kPolicy[] = "OMP_WAIT_POLICY";

TEST(OpenMpWaitsTest, SpinningIsInVainOnABusyMachine) {
  EXPECT_TRUE(SpinningWastesCores(Environment(), kBusy, 2));
  EXPECT_FALSE(SpinningWastesCores(Environment(), {}, 2));
  EXPECT_FALSE(SpinningWastesCores(Environment(), kBusy, 1));
}

TEST(OpenMpWaitsTest, TheUsersWordCounts) {
  for (const char* variable : {kPolicy, "GOMP_SPINCOUNT"}) {
    EXPECT_FALSE(
        SpinningWastesCores(Environment({{variable, "active"}}), kBusy, 2));
  }
}

TEST(OpenMpWaitsTest, TheProgramIsStartedAnewUnderItsOwnName) {
  ASSERT_NE(std::getenv(kPolicy), nullptr);
  EXPECT_STREQ(std::getenv(kPolicy), "passive");
  std::string name;
  std::ifstream("/proc/self/comm") >> name;
  EXPECT_EQ(name, std::string("openmp_waits_test").substr(0, 15));
}

TEST(OpenMpWaitsTest, OfOtherArgumentsThanTheProcessesNothingIsStarted) {
  ASSERT_EQ(unsetenv(kPolicy), 0);
  std::string name = "another program";
  char* argv[] = {name.data(), nullptr};
  WaitPassivelyWhereBusy(1, argv, /*spins_in_vain=*/true);
  EXPECT_EQ(std::getenv(kPolicy), nullptr);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::WaitPassivelyWhereBusy(
      argc, argv,
      /*spins_in_vain=*/std::getenv(tandem::kPolicy) == nullptr);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
