#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/device/host_resources.h"

namespace tandem::machine_load_test {
namespace {

MachineLoad Read(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/loadavg";
  std::ofstream(path) << text << "\n";
  return ReadMachineLoad(path);
}

TEST(MachineLoadTest, WhoAsksIsNoneOfTheOthers) {
  const MachineLoad load = Read("1.82 2.24 2.43 3/195 9663");
  EXPECT_EQ(load.average, 1.82);
  EXPECT_EQ(load.others_now, 2);
  EXPECT_EQ(Read("0.00 0.00 0.00 0/195 9663").others_now, 0);
  EXPECT_EQ(ReadMachineLoad("/no/such/file").average, 0);
}

TEST(MachineLoadTest, BusyIsNowAndForAWhile) {
  EXPECT_TRUE(IsBusy({1.5, 1}, 2));
  EXPECT_FALSE(IsBusy({1.5, 0}, 2));  // a job of ours has just ended
  EXPECT_FALSE(IsBusy({0.5, 1}, 2));  // other ranks start with us
  EXPECT_FALSE(IsBusy({5, 5}, 64));
  EXPECT_TRUE(IsBusy({33, 32}, 64));
}

}  // namespace
}  // namespace tandem::machine_load_test
