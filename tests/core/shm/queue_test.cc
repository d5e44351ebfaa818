// Tests of who runs what was issued, when its issuer does not wait for it.

#include "core/shm/queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "core/shm/collectives.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/rounds.h"
#include "core/shm/memory/segment.h"

namespace tandem::queue_test {
namespace {

// Too much to be copied when it is issued, too little to run in the background.
constexpr size_t kBytes = 128 << 10;
constexpr std::chrono::milliseconds kPatient = std::chrono::minutes(10);

class ShmQueueTest : public testing::Test {
 protected:
  ShmQueueTest() {
    auto segment = ShmSegment::Map(ShmSegment::NewMemory(2).value(), 2);
    EXPECT_TRUE(segment.ok()) << segment.status();
    segment_ = *std::move(segment);
    connections_.peers.resize(2);
  }

  // A broadcast from rank 0.
  static ShmCollectivePtr Broadcast(std::vector<std::byte>& tensor) {
    return MakeBroadcast({{tensor.data(), tensor.size()}}, 0, 0);
  }

  ShmSegment segment_;
  ShmConnections connections_;
  std::vector<std::byte> sent_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> received_ = std::vector<std::byte>(kBytes);
};

// A peer counts as impatient for its whole wait, and not for as long as it
// sleeps: it may be awake at the moment when a task is issued, and would sleep
// again without having rung.
TEST_F(ShmQueueTest, ATaskIsBegunWhenAPeerHasAskedBeforeAndIsJustAwake) {
  ShmQueue queue(&segment_, 0, &connections_);
  segment_.shared().impatient.fetch_add(1);
  const auto task = queue.Issue(Broadcast(sent_), nullptr, kPatient);
  while (!Reached(segment_.page(0).rounds.value(), 1)) {
    std::this_thread::yield();
  }
  ShmRounds peer(&segment_, 1, &connections_);
  const ShmCollectivePtr its = Broadcast(received_);
  its->Begin(peer);
  const absl::Status status =
      its->Finish(peer, std::chrono::steady_clock::now() + kPatient);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(received_, sent_);
  EXPECT_TRUE(queue.Wait(*task, std::chrono::milliseconds(0)).ok());
}

TEST_F(ShmQueueTest, APeerThatWaitsLongIsServedWhateverTheIssuerDoes) {
  ShmQueue queue(&segment_, 0, &connections_);
  absl::Status status;
  std::thread peer([&] {
    ShmRounds rounds(&segment_, 1, &connections_);
    const ShmCollectivePtr its = Broadcast(received_);
    its->Begin(rounds);
    status = its->Finish(rounds, std::chrono::steady_clock::now() + kPatient);
  });
  while (segment_.shared().impatient.load() == 0) std::this_thread::yield();
  const auto task = queue.Issue(Broadcast(sent_), nullptr, kPatient);
  peer.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(received_, sent_);
  EXPECT_EQ(segment_.shared().impatient.load(), 0U) << "it waits no more";
  EXPECT_TRUE(queue.Wait(*task, std::chrono::milliseconds(0)).ok());
}

}  // namespace
}  // namespace tandem::queue_test
