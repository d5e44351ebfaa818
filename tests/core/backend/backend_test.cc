// How a group's backends end: fakes of a host's and of a device's.

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

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace tandem::backend_test {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace tandem::backend_test
