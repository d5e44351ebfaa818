#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/device/device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::device_view_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeviceView View(int rank, int ranks, int n, int found) {
  DeviceView view;
  view.local_rank = rank;
  view.local_world_size = ranks;
  view.devices_per_rank = n;
  view.found = found;
  return view;
}

// The numbers of all ranks of a host, one after the other.
std::vector<int> OfAllRanks(DeviceView view) {
  std::vector<int> all;
  for (int rank = 0; rank < view.local_world_size; ++rank) {
    view.local_rank = rank;
    const auto mine = ChooseDevices(view);
    EXPECT_TRUE(mine.ok()) << mine.status();
    if (mine.ok()) all.insert(all.end(), mine->begin(), mine->end());
  }
  return all;
}

TEST(ChooseDevicesTest, RanksOfOneViewDivideIt) {
  for (const int ranks : {1, 2, 7}) {
    for (const int n : {1, 2, 3}) {
      for (const int more : {0, 1, 5}) {
        std::vector<int> counted(ranks * n);
        std::iota(counted.begin(), counted.end(), 0);
        EXPECT_EQ(OfAllRanks(View(0, ranks, n, ranks * n + more)), counted);
      }
    }
  }
}

TEST(ChooseDevicesTest, AViewOfItsOwnBeginsAtZero) {
  DeviceView view = View(0, 3, 2, 2);
  view.is_own = true;
  EXPECT_THAT(OfAllRanks(view), ElementsAre(0, 1, 0, 1, 0, 1));
  view.found = 5;  // of which it uses two
  EXPECT_THAT(OfAllRanks(view), ElementsAre(0, 1, 0, 1, 0, 1));
  view.found = 1;
  EXPECT_FALSE(ChooseDevices(view).ok());
}

// Of GPUs that are bound to nobody although Slurm counts them by task.
TEST(ChooseDevicesTest, AViewOfEnoughForAllIsDivided) {
  DeviceView view = View(0, 2, 2, 4);
  view.is_own = true;
  EXPECT_THAT(OfAllRanks(view), ElementsAre(0, 1, 2, 3));
}

TEST(ChooseDevicesTest, SharedDevicesAreDealtOutInTurns) {
  DeviceView view = View(0, 3, 2, 1);
  view.shared = true;
  EXPECT_THAT(OfAllRanks(view), ElementsAre(0, 0, 0, 0, 0, 0));
  view.found = 4;
  EXPECT_THAT(OfAllRanks(view), ElementsAre(0, 1, 2, 3, 0, 1));
  view.found = 7;
  EXPECT_THAT(OfAllRanks(view), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(ChooseDevicesTest, TooFewAreAnErrorOfEveryRank) {
  for (const int rank : {0, 1}) {
    const absl::Status status = ChooseDevices(View(rank, 2, 1, 1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        status.message(),
        HasSubstr("this host's 2 ranks need 2 devices, 1 each, and 1 was "
                  "found"));
  }
  EXPECT_THAT(ChooseDevices(View(0, 1, 1, 0)).status().message(),
              HasSubstr("this rank needs 1 device, and none were found"));
}

TEST(ChooseDevicesTest, NoneCannotBeSharedNorOwned) {
  DeviceView view = View(0, 2, 1, 0);
  view.shared = view.is_own = true;
  EXPECT_EQ(ChooseDevices(view).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ChooseDevicesTest, NumbersThatMakeNoSense) {
  for (const DeviceView& view :
       {View(-1, 1, 1, 1), View(1, 1, 1, 4), View(0, 1, 0, 1)}) {
    EXPECT_EQ(ChooseDevices(view).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

bool Own(const std::map<std::string, std::string>& variables,
         const std::string& launcher, int n, int found) {
  return IsOwnView(Environment(variables), launcher, n, found);
}

TEST(IsOwnViewTest, SlurmSaysWhatATaskGets) {
  EXPECT_TRUE(Own({{"SLURM_GPUS_PER_TASK", "1"}}, "slurm", 1, 1));
  EXPECT_TRUE(Own({{"SLURM_GPUS_PER_TASK", "h100:2"}}, "slurm", 1, 2));
  EXPECT_FALSE(Own({{"SLURM_GPUS_PER_TASK", "1"}}, "slurm", 1, 2));
  EXPECT_FALSE(Own({{"SLURM_GPUS_PER_TASK", "many"}}, "slurm", 1, 1));
  // --gpu-bind=single:1 of a step with four.
  EXPECT_TRUE(Own({{"SLURM_GPUS_ON_NODE", "4"}}, "slurm", 1, 1));
}

// srun --gres=gpu:1 --ntasks=2: one GPU, which both tasks see.
TEST(IsOwnViewTest, SlurmsVariablesOfAllTasksSayNothing) {
  const std::map<std::string, std::string> job = {{"CUDA_VISIBLE_DEVICES", "0"},
                                                  {"SLURM_GPUS_ON_NODE", "1"}};
  EXPECT_FALSE(Own(job, "slurm", 1, 1));
}

TEST(IsOwnViewTest, AVariableOfEachRankIsItsView) {
  for (const char* launcher : {"openmpi", "environment", "flags"}) {
    EXPECT_TRUE(Own({{"CUDA_VISIBLE_DEVICES", "3"}}, launcher, 1, 1));
    EXPECT_FALSE(Own({{"CUDA_VISIBLE_DEVICES", "2,3"}}, launcher, 1, 2));
    EXPECT_FALSE(Own({}, launcher, 1, 1));
  }
}

TEST(IsOwnViewTest, LaunchersThatCopyTheirEnvironmentGiveAllTheSame) {
  for (const char* launcher : {"tandem", "torchrun"}) {
    EXPECT_FALSE(Own({{"CUDA_VISIBLE_DEVICES", "3"}}, launcher, 1, 1));
    EXPECT_FALSE(Own({{"SLURM_GPUS_PER_TASK", "1"}}, launcher, 1, 1));
  }
}

}  // namespace
}  // namespace tandem::device_view_test
