#include "core/device/device.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::device_test {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const c10::Device kCpu(c10::DeviceType::CPU);

TEST(ParseDeviceTypeTest, KnowsCpuAndCuda) {
  EXPECT_EQ(ParseDeviceType("cpu").value(), c10::DeviceType::CPU);
  EXPECT_EQ(ParseDeviceType("cuda").value(), c10::DeviceType::CUDA);
  for (const char* other : {"", "gpu", "CPU", "cuda:0"}) {
    EXPECT_THAT(ParseDeviceType(other).status(),
                InvalidArgument("known are: cpu, cuda"));
  }
}

// The request of a rank on a host with so many ranks.
DeviceRequest Asked(int local_rank, int ranks, int devices_per_rank) {
  DeviceRequest request;
  request.local_rank = local_rank;
  request.local_world_size = ranks;
  request.devices_per_rank = devices_per_rank;
  return request;
}

TEST(DevicesOfTest, PlacesShareTheCpu) {
  EXPECT_THAT(DevicesOf(Asked(3, 4, 2), c10::DeviceType::CPU).value(),
              ElementsAre(kCpu, kCpu));
  EXPECT_FALSE(DevicesOf(Asked(-1, 1, 1), c10::DeviceType::CPU).ok());
  EXPECT_FALSE(DevicesOf(Asked(0, 1, 0), c10::DeviceType::CPU).ok());
}

TEST(DevicesOfTest, GpusThatAreNotThereAreAnError) {
  // No machine has that many.
  const absl::Status status =
      DevicesOf(Asked(999, 1000, 2), c10::DeviceType::CUDA).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  // With --config=cuda, the second.
  EXPECT_THAT(status.message(),
              AnyOf(HasSubstr("built without CUDA; build it with "
                              "--config=cuda (docs/rehearsal.md)"),
                    HasSubstr("1000 ranks need 2000 devices, 2 each, and ")));
}

TEST(RunOnDeviceTest, RunsInTheCallersThread) {
  const std::thread::id here = std::this_thread::get_id();
  EXPECT_TRUE(RunOnDevice(kCpu, [&] {
                EXPECT_EQ(std::this_thread::get_id(), here);
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(RunOnDevice(kCpu, [] { return absl::NotFoundError("none"); }),
            absl::NotFoundError("none"));
}

TEST(RunOnDeviceTest, AnExceptionBecomesAStatus) {
  const absl::Status status = RunOnDevice(kCpu, [] {
    at::ones({2}).add(at::ones({3}));
    return absl::OkStatus();
  });
  EXPECT_THAT(status.message(), HasSubstr("must match"));
}

// LibTorch has one device of this type, without memory.
constexpr c10::DeviceType kMeta = c10::DeviceType::Meta;

TEST(RegisterDeviceTypeTest, MakesANameKnown) {
  EXPECT_THAT(ParseDeviceType("nowhere").status().message(),
              HasSubstr("the device nowhere is not known"));
  RegisterDeviceType("nowhere", kMeta);
  EXPECT_EQ(ParseDeviceType("nowhere").value(), kMeta);
  EXPECT_THAT(ParseDeviceType("elsewhere").status().message(),
              HasSubstr("known are: cpu, cuda, nowhere"));
  EXPECT_EQ(ParseDeviceType("cpu").value(), c10::DeviceType::CPU);
}

TEST(RegisterDeviceTypeTest, MayBeRepeatedAndReplaced) {
  RegisterDeviceType("again", kMeta);
  RegisterDeviceType("again", kMeta);
  EXPECT_EQ(ParseDeviceType("again").value(), kMeta);
  RegisterDeviceType("again", c10::DeviceType::CPU);
  EXPECT_EQ(ParseDeviceType("again").value(), c10::DeviceType::CPU);
}

TEST(DevicesOfTest, LibTorchCountsRegisteredDevices) {
  EXPECT_THAT(DevicesOf(Asked(0, 1, 1), kMeta).value(),
              ElementsAre(c10::Device(kMeta, 0)));
  EXPECT_THAT(DevicesOf(Asked(1, 2, 2), kMeta).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "2 ranks need 4 devices, 2 each, and 1 was found "
                       "(meta); start fewer ranks"));
}

TEST(DevicesOfTest, PlacesMayShareADevice) {
  DeviceRequest request = Asked(1, 2, 2);
  request.shared = true;
  EXPECT_THAT(DevicesOf(request, kMeta).value(),
              ElementsAre(c10::Device(kMeta, 0), c10::Device(kMeta, 0)));
}

TEST(PlaceTest, RunsEverythingOnOneThreadInOrder) {
  DeviceThread place(kCpu);
  EXPECT_EQ(place.device(), kCpu);
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 100; ++i) {
    place.Submit([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
      return absl::OkStatus();
    });
  }
  ASSERT_TRUE(place.Run([] { return absl::OkStatus(); }).ok());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_EQ(threads[i], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

// What oneDNN and MKL go by, be it that of LibTorch's threads or not.
TEST(PlaceTest, OpenMpKnowsTheProcesssNumberOfThreads) {
  auto* const omp_threads =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  if (omp_threads == nullptr) GTEST_SKIP() << "LibTorch is without OpenMP";
  const int before = at::get_num_threads();
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    DeviceThread place(kCpu);
    int found = 0;
    ASSERT_TRUE(place
                    .Run([&] {
                      found = omp_threads();
                      return absl::OkStatus();
                    })
                    .ok());
    EXPECT_EQ(found, threads);
    // A program's own, which the strategy of a rank with one device works on.
    std::thread([&] {
      ExpectOk(RunOnDevice(kCpu, [&] {
        found = -omp_threads();
        return absl::OkStatus();
      }));
    }).join();
    EXPECT_EQ(found, -threads);
  }
  at::set_num_threads(before);
}

TEST(PlaceTest, StatusesAndExceptionsComeBack) {
  DeviceThread place(kCpu);
  EXPECT_EQ(place.Run([] { return absl::AbortedError("stop"); }),
            absl::AbortedError("stop"));
  std::future<absl::Status> bad = place.Submit([] {
    at::ones({2}).view({3});
    return absl::OkStatus();
  });
  EXPECT_EQ(bad.get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(place.Run([] { return absl::OkStatus(); }).ok());
}

TEST(PlaceTest, PlacesOnTheCpuRunAtTheSameTime) {
  DeviceThread first(kCpu), second(kCpu);
  std::promise<void> ping, pong;
  // Each waits for the other: on one thread this would never end.
  std::future<absl::Status> a = first.Submit([&] {
    ping.set_value();
    pong.get_future().wait();
    return absl::OkStatus();
  });
  EXPECT_TRUE(second
                  .Run([&] {
                    ping.get_future().wait();
                    pong.set_value();
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_TRUE(a.get().ok());
}

TEST(PlaceTest, WorkMayRunWorkOnItsOwnPlace) {
  DeviceThread place(kCpu);
  EXPECT_EQ(place.Run([&] {
    return place.Run([] { return absl::AbortedError("inner"); });
  }),
            absl::AbortedError("inner"));
}

TEST(PlaceTest, WorkSeesTheSubmittersGradMode) {
  DeviceThread place(kCpu);
  const auto grad_mode = [&] {
    bool enabled = false;
    EXPECT_TRUE(place
                    .Run([&] {
                      enabled = at::GradMode::is_enabled();
                      return absl::OkStatus();
                    })
                    .ok());
    return enabled;
  };
  EXPECT_TRUE(grad_mode());
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(grad_mode());
  }
  EXPECT_TRUE(grad_mode());
}

TEST(PlaceTest, DestructionRunsWhatWasSubmitted) {
  int ran = 0;
  auto place = std::make_unique<DeviceThread>(kCpu);
  for (int i = 0; i < 7; ++i) {
    place->Submit([&] {
      ++ran;
      return absl::OkStatus();
    });
  }
  place.reset();
  EXPECT_EQ(ran, 7);
}

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

// GPUs that are bound to nobody although Slurm counts them by task.
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
}  // namespace tandem::device_test
