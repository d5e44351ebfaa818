#include <ATen/Functions.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/device/host_memory.h"
#include "core/device/host_resources.h"
#include "core/sim/testing.h"
#include "core/testing/device_types.h"

namespace tandem::host_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HostMemoryTest : public testing::TestWithParam<const char*> {
 protected:
  static c10::Device Device() {
    if (std::string(GetParam()) == "cpu") return c10::DeviceType::CPU;
    return SimDevices(2)[1];
  }
};

TEST_P(HostMemoryTest, RunsTheCpusKernels) {
  EXPECT_TRUE(RunsCpuKernels(Device().type()));
}

TEST_P(HostMemoryTest, ViewsAreTheSameMemory) {
  const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3}).to(Device());
  at::Tensor view = HostView(tensor);
  EXPECT_TRUE(view.device().is_cpu());
  EXPECT_TRUE(at::equal(view, at::arange(6, at::kFloat).view({2, 3})));
  view.mul_(2);
  EXPECT_EQ(tensor.sum().item<float>(), 30);
  tensor.zero_();
  // Asks again, which waits for zero_ where that was queued.
  EXPECT_EQ(HostView(tensor).sum().item<float>(), 0);
  EXPECT_EQ(view.data_ptr(), HostView(tensor).data_ptr());
}

TEST_P(HostMemoryTest, ViewsKeepShapeStridesAndOffset) {
  const at::Tensor whole = at::arange(24, at::kLong).view({4, 6}).to(Device());
  const at::Tensor part = whole.t().slice(0, 1, 6, 2).slice(1, 1, 4);
  const at::Tensor view = HostView(part);
  EXPECT_EQ(view.sizes(), part.sizes());
  EXPECT_EQ(view.strides(), part.strides());
  EXPECT_EQ(view.storage_offset(), part.storage_offset());
  EXPECT_EQ(view.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(view, part.cpu()));
}

TEST_P(HostMemoryTest, EmptyTensorsHaveViews) {
  const at::Tensor view =
      HostView(at::empty({0, 3}, at::TensorOptions().device(Device())));
  EXPECT_TRUE(view.device().is_cpu());
  EXPECT_EQ(view.sizes(), at::IntArrayRef({0, 3}));
}

TEST_P(HostMemoryTest, ViewsAreOutsideOfAutograd) {
  const at::Tensor tensor =
      at::ones({3}, at::TensorOptions().device(Device())).requires_grad_();
  EXPECT_FALSE(HostView(tensor).requires_grad());
  const at::Tensor computed = at::mul(tensor, 2);
  const at::Tensor view = HostView(computed);
  EXPECT_FALSE(view.requires_grad());
  EXPECT_EQ(view.grad_fn(), nullptr);
  EXPECT_TRUE(computed.requires_grad());
}

TEST_P(HostMemoryTest, ViewsHoldTheMemory) {
  at::Tensor tensor = at::full({1000}, 7, at::TensorOptions().device(Device()));
  const at::Tensor view = HostView(tensor);
  tensor = at::Tensor();
  const at::Tensor other =
      at::zeros({1000}, at::TensorOptions().device(Device()));
  EXPECT_EQ(view.sum().item<int64_t>(), 7000);
}

INSTANTIATE_TEST_SUITE_P(On, HostMemoryTest, testing::Values("cpu", "sim"));

TEST(OtherHostMemoryTest, OtherDevicesHaveNone) {
  EXPECT_FALSE(RunsCpuKernels(c10::DeviceType::Meta));
  EXPECT_FALSE(RunsCpuKernels(c10::DeviceType::CUDA));
  const at::Tensor meta =
      at::empty({3}, at::TensorOptions().device(c10::DeviceType::Meta));
  EXPECT_FALSE(HostView(meta).defined());
}

at::Tensor Three(const at::Tensor&) { return at::ones({3}); }

TEST(OtherHostMemoryTest, ADeviceIsMadeOneByRegistration) {
  RegisterHostMemory(c10::DeviceType::Lazy, &Three);
  EXPECT_TRUE(RunsCpuKernels(c10::DeviceType::Lazy));
  EXPECT_FALSE(RunsCpuKernels(c10::DeviceType::XLA));
}

class HostNumbersTest : public DeviceTypeTest {};

TEST_P(HostNumbersTest, TensorsOfAnyShapeTypeAndDevice) {
  const std::vector<c10::Device> devices = Devices(2);
  EXPECT_THAT(ReadNumbers({}), IsEmpty());
  EXPECT_THAT(ReadNumbers({at::arange(4).view({2, 2}).t().to(devices[1]),
                           at::full({}, 0.5, at::kFloat),
                           at::full({1}, 1e300, at::kDouble).to(devices[0]),
                           at::full({0}, 7.).to(devices[1]),
                           at::full({1}, true, at::kBool).to(devices[1])}),
              ElementsAre(0, 2, 1, 3, 0.5, 1e300, 1));
}

TEST_P(HostNumbersTest, GradientsAreNoHindrance) {
  const at::Tensor x = at::full({2}, 3.).to(TestDevice()).requires_grad_();
  EXPECT_THAT(ReadNumbers({x, x}), ElementsAre(3, 3, 3, 3));
}

TANDEM_ON_DEVICE_TYPES(HostNumbersTest);

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A control group's folder, and a machine with 100 GiB left.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(::testing::TempDir() + "/" + name) {
    std::filesystem::create_directories(path_ + "/memory");
    std::filesystem::create_directories(path_ + "/cpu");
    Write("meminfo",
          "MemTotal: 268435456 kB\nMemFree: 1024 kB\n"
          "MemAvailable: 104857600 kB\nBuffers: 7 kB");
  }
  void Write(const std::string& file, const std::string& text) {
    const std::string path = path_ + "/" + file;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    std::ofstream(path) << text << "\n";
  }
  double quota() const { return CpuQuota(groups()); }
  uint64_t limit() const { return MemoryLimit(groups()); }
  uint64_t available() const {
    return AvailableMemory(groups(), path_ + "/meminfo");
  }

 private:
  ControlGroups groups() const { return {path_, path_ + "/membership"}; }

  const std::string path_;
};

std::string Bytes(uint64_t gibibytes) {
  return std::to_string(gibibytes * kGiB);
}

TEST(AvailableMemoryTest, WithoutAGroupItIsTheMachines) {
  const Folder folder("none");
  EXPECT_EQ(folder.available(), 100 * kGiB);
  EXPECT_EQ(folder.limit(), kNoMemoryLimit);
}

TEST(AvailableMemoryTest, ContentsOfFilesCountAsLeft) {
  Folder folder("v2");
  folder.Write("memory.max", Bytes(8));
  // The limit is used up, by files that were read.
  folder.Write("memory.current", Bytes(8));
  folder.Write("memory.stat", "anon " + Bytes(2) + "\nfile " + Bytes(6) +
                                  "\nshmem " + Bytes(1) + "\ninactive_file " +
                                  Bytes(4) + "\nactive_file " + Bytes(1));
  EXPECT_EQ(folder.limit(), 8 * kGiB);
  EXPECT_EQ(folder.available(), 5 * kGiB);
}

TEST(AvailableMemoryTest, SharedMemoryAndTheProcessesOwnDoNot) {
  Folder folder("full");
  folder.Write("memory.max", Bytes(8));
  folder.Write("memory.current", Bytes(8));
  folder.Write("memory.stat", "anon " + Bytes(5) + "\nfile " + Bytes(3) +
                                  "\nshmem " + Bytes(3) + "\ninactive_anon " +
                                  Bytes(8) +
                                  "\ninactive_file 0\nactive_file 0");
  EXPECT_EQ(folder.available(), 0U);
}

TEST(AvailableMemoryTest, MoreThanTheLimitIsNothingLeft) {
  Folder folder("lowered");
  folder.Write("memory.max", Bytes(4));
  folder.Write("memory.current", Bytes(8));
  EXPECT_EQ(folder.available(), 0U);
  // Read at another moment, the two files may not agree.
  folder.Write("memory.stat", "inactive_file " + Bytes(9));
  EXPECT_EQ(folder.available(), 4 * kGiB);
}

TEST(AvailableMemoryTest, Version1CountsGroupsBelowItsOwn) {
  Folder folder("v1");
  folder.Write("memory/memory.limit_in_bytes", Bytes(8));
  folder.Write("memory/memory.usage_in_bytes", Bytes(7));
  folder.Write("memory/memory.stat",
               "inactive_file 0\nactive_file 0\ntotal_inactive_file " +
                   Bytes(2) + "\ntotal_active_file " + Bytes(1));
  EXPECT_EQ(folder.limit(), 8 * kGiB);
  EXPECT_EQ(folder.available(), 4 * kGiB);
}

TEST(AvailableMemoryTest, AGroupWithoutALimitHasWhatTheMachineHas) {
  Folder folder("unlimited");
  folder.Write("memory.max", "max");
  folder.Write("memory.current", Bytes(50));
  folder.Write("memory/memory.limit_in_bytes", "9223372036854771712");
  folder.Write("memory/memory.usage_in_bytes", Bytes(50));
  EXPECT_EQ(folder.available(), 100 * kGiB);
  EXPECT_EQ(folder.limit(), kNoMemoryLimit);
}

TEST(AvailableMemoryTest, TheGroupWithTheLeastDecides) {
  Folder folder("nested");
  folder.Write("membership", "0::/job/step");
  folder.Write("job/memory.max", Bytes(16));
  folder.Write("job/memory.current", Bytes(15));  // of several steps
  folder.Write("job/step/memory.max", Bytes(8));
  folder.Write("job/step/memory.current", Bytes(2));
  EXPECT_EQ(folder.limit(), 8 * kGiB);
  EXPECT_EQ(folder.available(), 1 * kGiB);
  folder.Write("job/memory.current", Bytes(3));
  EXPECT_EQ(folder.available(), 6 * kGiB);
}

TEST(AvailableMemoryTest, Version1HasAPathOfItsOwn) {
  Folder folder("nested_v1");
  folder.Write("membership", "4:cpu:/other\n3:memory:/slurm/job_7");
  folder.Write("memory/slurm/job_7/memory.limit_in_bytes", Bytes(2));
  folder.Write("memory/slurm/job_7/memory.usage_in_bytes", Bytes(1));
  EXPECT_EQ(folder.limit(), 2 * kGiB);
  EXPECT_EQ(folder.available(), 1 * kGiB);
}

// Docker's without a namespace: the host's path, whose group is the root here.
TEST(AvailableMemoryTest, APathThatIsNotThereIsTheRoot) {
  Folder folder("container");
  for (const char* path : {"0::/docker/4711", "0::/../../4711", "0::", ""}) {
    folder.Write("membership", path);
    folder.Write("memory.max", Bytes(4));
    folder.Write("memory.current", Bytes(1));
    EXPECT_EQ(folder.available(), 3 * kGiB) << path;
  }
}

TEST(AvailableMemoryTest, ThisMachineHasSome) {
  EXPECT_GT(AvailableMemory(), 0U);
  EXPECT_LT(AvailableMemory(), kNoMemoryLimit);
}

TEST(CpuQuotaTest, Version2) {
  Folder folder("v2");
  folder.Write("cpu.max", "150000 100000");
  EXPECT_EQ(folder.quota(), 1.5);
  folder.Write("cpu.max", "max 100000");
  EXPECT_EQ(folder.quota(), kNoCpuQuota);
}

TEST(CpuQuotaTest, Version1) {
  Folder folder("v1");
  folder.Write("cpu/cpu.cfs_quota_us", "50000");
  folder.Write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(folder.quota(), 0.5);
  folder.Write("cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(folder.quota(), kNoCpuQuota);
}

TEST(CpuQuotaTest, NoControlGroupsAreNoQuota) {
  EXPECT_EQ(Folder("none").quota(), kNoCpuQuota);
  EXPECT_EQ(CpuQuota({"/no/such/folder", "/no/such/file"}), kNoCpuQuota);
}

// systemd-run -p CPUQuota=, Slurm's task/cgroup: a group within others.
TEST(CpuQuotaTest, TheLeastOfAGroupAndThoseItLiesIn) {
  Folder folder("nested_v2");
  folder.Write("membership", "0::/user.slice/run.scope");
  folder.Write("cpu.max", "max 100000");
  folder.Write("user.slice/cpu.max", "300000 100000");
  EXPECT_EQ(folder.quota(), 3);
  folder.Write("user.slice/run.scope/cpu.max", "100000 100000");
  EXPECT_EQ(folder.quota(), 1);
  folder.Write("user.slice/cpu.max", "50000 100000");
  EXPECT_EQ(folder.quota(), 0.5);
  folder.Write("membership", "0::/other.slice");
  EXPECT_EQ(folder.quota(), kNoCpuQuota);
}

TEST(CpuQuotaTest, Version1NamesTheGroupOfEachController) {
  Folder folder("nested_v1");
  folder.Write("membership",
               "12:memory:/m\n4:cpu,cpuacct:/a/b\n1:name=systemd:/c\n0::/");
  folder.Write("cpu/a/b/cpu.cfs_quota_us", "150000");
  folder.Write("cpu/a/b/cpu.cfs_period_us", "100000");
  folder.Write("cpu/m/cpu.cfs_quota_us", "10000");
  folder.Write("cpu/m/cpu.cfs_period_us", "100000");
  EXPECT_EQ(folder.quota(), 1.5);
}

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path) << text << "\n";
}

TEST(TaskLimitTest, TheGroupWithTheFewestLeftDecides) {
  const std::string root = ::testing::TempDir() + "/tasks";
  const ControlGroups groups = {root, root + "/membership"};
  EXPECT_EQ(TasksLeft(groups), kNoTaskLimit);
  Write(groups.membership, "8:pids:/v1\n0::/a/b");
  Write(root + "/a/pids.max", "100");
  Write(root + "/a/pids.current", "90");
  Write(root + "/a/b/pids.max", "max");
  Write(root + "/a/b/pids.current", "5");
  EXPECT_EQ(TasksLeft(groups), 10u);
  Write(root + "/pids/v1/pids.max", "8");
  Write(root + "/pids/v1/pids.current", "6");
  EXPECT_EQ(TasksLeft(groups), 2u);
  Write(root + "/pids/v1/pids.current", "9");  // lowered meanwhile
  EXPECT_EQ(TasksLeft(groups), 0u);
}

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
}  // namespace tandem::host_test
