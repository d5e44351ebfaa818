// Backends of groups: their names, and how they end.

#include "core/backend/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/backend/backend_names.h"
#include "core/backend/communicator_options.h"
#include "core/backend/nccl_backend.h"
#include "core/store/store.h"
#include "core/testing/statuses.h"

namespace tandem::backend_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseBackend, OneNameServesTheHostOrADeviceBesideShm) {
  for (const char* host : {"shm", "gloo"}) {
    const auto names = ParseBackend(host);
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->host, host);
    EXPECT_EQ(names->device, "");
  }
  const auto sim = ParseBackend("sim_nccl");
  ASSERT_TRUE(sim.ok()) << sim.status();
  EXPECT_EQ(sim->host, "shm");
  EXPECT_EQ(sim->device, "sim_nccl");
  EXPECT_EQ(sim->device_type, c10::DeviceType::PrivateUse1);
  const auto nccl = ParseBackend("nccl");
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ(nccl->device, "nccl");
  EXPECT_EQ(nccl->device_type, c10::DeviceType::CUDA);
}

TEST(ParseBackend, TwoByTheirDevicesInAnyOrder) {
  for (const char* text : {"cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo"}) {
    const auto names = ParseBackend(text);
    ASSERT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->host, "gloo");
    EXPECT_EQ(names->device, "nccl");
  }
}

TEST(ParseBackend, RefusesOthersAndListsWhatThereIs) {
  for (const char* text :
       {"", "mpi", "cpu:nccl", "cuda:gloo", "cpu:", ":shm", "shm,", "SHM"}) {
    const auto names = ParseBackend(text);
    ASSERT_FALSE(names.ok()) << text;
    EXPECT_THAT(std::string(names.status().message()),
                HasSubstr("known are: shm, gloo, sim_nccl, nccl"));
  }
}

TEST(BackendMultiplies, GlooAloneDoesNot) {
  for (const double factor : {0.5, 1.0 / 3}) {
    EXPECT_TRUE(BackendMultiplies("shm", at::kFloat, factor));
    EXPECT_TRUE(BackendMultiplies("nccl", at::kFloat, factor));
    EXPECT_TRUE(BackendMultiplies("sim_nccl", at::kDouble, factor));
    EXPECT_FALSE(BackendMultiplies("gloo", at::kFloat, factor));
    EXPECT_FALSE(BackendMultiplies("", at::kFloat, factor));
  }
}

TEST(BackendMultiplies, NcclOnlyByWhatTheDtypeHolds) {
  for (const char* name : {"nccl", "sim_nccl"}) {
    EXPECT_TRUE(BackendMultiplies(name, at::kBFloat16, 0.25)) << name;
    EXPECT_FALSE(BackendMultiplies(name, at::kBFloat16, 1.0 / 3)) << name;
    EXPECT_TRUE(BackendMultiplies(name, at::kHalf, 0.25)) << name;
    EXPECT_FALSE(BackendMultiplies(name, at::kHalf, 1.0 / 3)) << name;
    EXPECT_FALSE(BackendMultiplies(name, at::kHalf, 65536)) << name;
  }
  EXPECT_TRUE(BackendMultiplies("shm", at::kBFloat16, 1.0 / 3));
}

// How a group's backends end: fakes of a host's and of a device's.

// What was called, and whether it may return. Shared with threads that are left
// behind.
struct Calls {
  absl::Mutex mutex;
  std::vector<std::string> made;
  bool aborts_block = false;
  bool shutdowns_block = false;
  absl::Notification may_return;

  void Make(const std::string& call) {
    absl::MutexLock lock(&mutex);
    made.push_back(call);
  }
  std::vector<std::string> Made() {
    absl::MutexLock lock(&mutex);
    return made;
  }
};

class FakeBackend : public c10d::Backend {
 public:
  FakeBackend(std::string name, std::shared_ptr<Calls> calls)
      : Backend(/*rank=*/0, /*size=*/1),
        name_(std::move(name)),
        calls_(std::move(calls)) {}

  const std::string getBackendName() const override { return name_; }
  void abort() override {
    calls_->Make(name_ + " aborts");
    if (calls_->aborts_block && name_ == "device") {
      calls_->may_return.WaitForNotification();
    }
  }
  void shutdown() override {
    calls_->Make(name_ + " shuts down");
    if (calls_->shutdowns_block) calls_->may_return.WaitForNotification();
  }

 private:
  const std::string name_;
  const std::shared_ptr<Calls> calls_;
};

class BackendEndTest : public testing::Test {
 protected:
  BackendEndTest() {
    using BackendType = c10d::ProcessGroup::BackendType;
    group_->setBackend(c10::DeviceType::PrivateUse1, BackendType::NCCL,
                       c10::make_intrusive<FakeBackend>("device", calls_));
    group_->setBackend(c10::DeviceType::CPU, BackendType::GLOO,
                       c10::make_intrusive<FakeBackend>("host", calls_));
  }
  ~BackendEndTest() override { calls_->may_return.Notify(); }

  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  const c10::intrusive_ptr<c10d::ProcessGroup> group_ =
      c10::make_intrusive<c10d::ProcessGroup>(
          c10::make_intrusive<c10d::HashStore>(), /*rank=*/0, /*size=*/1);
};

TEST_F(BackendEndTest, TheHostsIsAbortedFirst) {
  AbortBackends(*group_, "a reason");
  EXPECT_THAT(calls_->Made(), ElementsAre("host aborts", "device aborts"));
}

// An abort that blocks as ncclCommAbort may, while a kernel waits for a peer
// that is gone.
TEST_F(BackendEndTest, AnAbortThatBlocksHoldsUpNobody) {
  calls_->aborts_block = true;
  AbortBackends(*group_, "a reason");  // returns
  EXPECT_THAT(calls_->Made(), ElementsAre("host aborts", "device aborts"));
}

TEST_F(BackendEndTest, TheDevicesIsShutDown) {
  CloseBackends(*group_, std::chrono::seconds(30));
  EXPECT_THAT(calls_->Made(), ElementsAre("device shuts down"));
}

TEST_F(BackendEndTest, WhoseShutdownBlocksIsAborted) {
  calls_->shutdowns_block = true;
  CloseBackends(*group_, std::chrono::milliseconds(20));
  EXPECT_THAT(calls_->Made(),
              ElementsAre("device shuts down", "device aborts"));
}

// Ranks of several hosts that would bind what no other host reaches.

TEST(HostIdentityTest, ContainersOfOneNetworkShareItsLoopback) {
  EXPECT_TRUE(SharesLoopback("a boot 4:1", "a boot 4:1"));
  EXPECT_TRUE(SharesLoopback("a boot 4:1", "b boot 4:1"));
  EXPECT_FALSE(SharesLoopback("a boot 4:1", "a boot 4:2"));
  EXPECT_FALSE(SharesLoopback("a boot 4:1", "b other 4:1"));
  EXPECT_TRUE(SharesLoopback("a", "b"));
}

absl::Status JoinOverHosts(const std::string& backend,
                           const std::string& interface) {
  GroupPlace place;
  place.store = NewHashStore(std::chrono::seconds(30));
  place.hosts = {HostIdentity(), "other boot 0:0"};
  place.name = "group";
  place.job = place.store;
  CommunicatorOptions options;
  options.backend = backend;
  options.interface = interface;
  options.all_local = false;
  options.timeout = std::chrono::seconds(30);
  return MakeProcessGroup(place, options).status();
}

TEST(GlooBackendTest, LoopbackBetweenHostsIsRefusedBeforeAnybodyWaits) {
  for (const char* backend : {"gloo", "shm"}) {
    for (const char* place : {"lo", "127.0.0.1", "::1"}) {
      EXPECT_THAT(JoinOverHosts(backend, place),
                  InvalidArgument("is loopback", "--interface"));
    }
  }
}

// What can be said of NCCL without a GPU. Under --config=cuda it is linked,
// else it is refused.

absl::Status Make(c10::Device device) {
  return MakeNcclBackend(c10::make_intrusive<c10d::HashStore>(), 0, 1, device,
                         NcclOptions())
      .status();
}

TEST(NcclBackendTest, ABuildWithoutItSaysHowToGetIt) {
  if (NcclIsBuilt()) {
    EXPECT_TRUE(CheckNcclIsBuilt().ok());
    return;
  }
  for (const absl::Status& status :
       {CheckNcclIsBuilt(), Make(c10::Device(c10::kCUDA, 0)),
        JoinNcclSplit(nullptr, c10::Device(c10::kCUDA, 0))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("build it with --config=cuda"));
  }
}

TEST(NcclBackendTest, RefusesWhatIsNoGpu) {
  if (!NcclIsBuilt()) return;
  for (const c10::Device device :
       {c10::Device(c10::kCPU), c10::Device(c10::kCUDA),
        c10::Device(c10::kCUDA, 99)}) {
    EXPECT_THAT(
        Make(device),
        InvalidArgument(
            "NCCL needs a GPU, such as cuda:0, and is given " + device.str(),
            "GPUs were found"));
  }
}

TEST(NcclBackendTest, RefusesToSplitWhatIsNotNccls) {
  if (!NcclIsBuilt()) return;
  EXPECT_THAT(JoinNcclSplit(nullptr, c10::Device(c10::kCUDA, 0)).message(),
              HasSubstr("split from one of another backend"));
}

}  // namespace
}  // namespace tandem::backend_test
