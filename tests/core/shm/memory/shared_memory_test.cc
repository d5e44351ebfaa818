// Memory, sockets and signals between processes, and the arena made of them.

#include "core/shm/memory/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/shm/memory/local_socket.h"
#include "core/shm/memory/segment.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;

TEST(SharedMemoryTest, IsZerosThatTwoMappingsShare) {
  auto fd = NewSharedMemory(kPage);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto one = SharedMapping::Map(fd->get(), kPage);
  auto other = SharedMapping::Map(fd->get(), kPage);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_NE(one->data(), other->data());
  EXPECT_EQ(one->data()[17], std::byte{0});
  one->data()[17] = std::byte{5};
  EXPECT_EQ(other->data()[17], std::byte{5});
}

TEST(SharedMemoryTest, IsThisUsersAloneAndNeverShrinks) {
  auto fd = NewSharedMemory(kPage);
  ASSERT_TRUE(fd.ok()) << fd.status();
  struct stat status {};
  ASSERT_EQ(fstat(fd->get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_NE(ftruncate(fd->get(), 0), 0);
  EXPECT_EQ(SharedMemorySize(fd->get()).value(), kPage);
}

TEST(SharedMemoryTest, ReservingGrowsAndReleasingClears) {
  auto fd = NewSharedMemory(0);
  ASSERT_TRUE(fd.ok()) << fd.status();
  ASSERT_TRUE(ReserveSharedMemory(fd->get(), kPage, kPage).ok());
  EXPECT_EQ(SharedMemorySize(fd->get()).value(), 2 * kPage);
  auto mapping = SharedMapping::Map(fd->get(), 2 * kPage);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  mapping->data()[kPage] = std::byte{5};
  ReleaseSharedMemory(fd->get(), kPage, kPage);
  EXPECT_EQ(mapping->data()[kPage], std::byte{0});
}

// Should what is tested here be broken, the file cannot grow to take all of the
// machine's memory.
void LimitFileSizes() {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit one_gibibyte{1 << 30, 1 << 30};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &one_gibibyte), 0);
}

TEST(SharedMemoryTest, MoreThanThereIsIsAnError) {
  LimitFileSizes();
  auto fd = NewSharedMemory(0);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const absl::Status status =
      ReserveSharedMemory(fd->get(), 0, size_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("are available"));
  EXPECT_TRUE(
      absl::IsOutOfRange(SharedMapping::Map(fd->get(), kPage).status()));
}

TEST(LocalSocketTest, CarriesDescriptorsToAnotherProcess) {
  auto listener = ListenLocal(1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const pid_t child = fork();
  if (child == 0) {
    auto fd = NewSharedMemory(kPage);
    auto mapping = SharedMapping::Map(fd->get(), kPage);
    std::memcpy(mapping->data(), "hello", 5);
    auto peer = ConnectLocal(listener->name);
    const int32_t word = 7;
    _exit(SendWithFds(peer->fd.get(), &word, sizeof(word), {fd->get()}).ok()
              ? 0
              : 1);
  }
  const SocketDeadline soon = Clock::now() + std::chrono::seconds(20);
  auto peer = AcceptLocal(listener->fd.get(), soon);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, child);
  int32_t word = 0;
  auto fds = ReceiveWithFds(peer->fd.get(), &word, sizeof(word), 1, soon);
  ASSERT_TRUE(fds.ok()) << fds.status();
  EXPECT_EQ(word, 7);
  auto mapping = SharedMapping::Map((*fds)[0].get(), kPage);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(std::memcmp(mapping->data(), "hello", 5), 0);
  int end = 0;
  EXPECT_EQ(waitpid(child, &end, 0), child);
  EXPECT_TRUE(absl::IsUnavailable(
      ReceiveWithFds(peer->fd.get(), &word, sizeof(word), 0, soon).status()));
}

TEST(LocalSocketTest, WhatIsNotThereIsAnError) {
  EXPECT_TRUE(absl::IsUnavailable(ConnectLocal("tandem-nobody").status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ConnectLocal(std::string(200, 'x')).status()));
  auto listener = ListenLocal(1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      AcceptLocal(listener->fd.get(), Clock::now() + milliseconds(20))
          .status()));
}

TEST(LocalSocketTest, AnUnexpectedMessageIsDataLoss) {
  auto listener = ListenLocal(1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const SocketDeadline soon = Clock::now() + std::chrono::seconds(20);
  auto one = ConnectLocal(listener->name);
  auto other = AcceptLocal(listener->fd.get(), soon);
  ASSERT_TRUE(one.ok() && other.ok());
  const int32_t word = 7;
  ASSERT_TRUE(SendWithFds(one->fd.get(), &word, sizeof(word), {}).ok());
  int64_t longer = 0;
  EXPECT_TRUE(absl::IsDataLoss(
      ReceiveWithFds(other->fd.get(), &longer, sizeof(longer), 0, soon)
          .status()));
}

TEST(SharedSignalTest, WakesASleeperInAnotherProcess) {
  auto fd = NewSharedMemory(kPage);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto mapping = SharedMapping::Map(fd->get(), kPage);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  auto* const signals = reinterpret_cast<SharedSignal*>(mapping->data());
  const pid_t child = fork();
  if (child == 0) {
    while (!signals[0].awaited()) std::this_thread::yield();
    signals[0].Add(3);
    _exit(0);
  }
  const auto start = Clock::now();
  while (signals[0].value() == 0) {
    signals[0].Sleep(0, std::chrono::seconds(20));
  }
  EXPECT_EQ(signals[0].value(), 3U);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_FALSE(signals[0].awaited());
  waitpid(child, nullptr, 0);
}

TEST(SharedSignalTest, SleepEndsByItsTimeoutAndNotAtAllBeginsOnAnotherValue) {
  SharedSignal signal;
  const auto start = Clock::now();
  signal.Sleep(0, milliseconds(20));
  EXPECT_GE(Clock::now() - start, milliseconds(20));
  signal.Sleep(1, std::chrono::seconds(100));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(50));
}

TEST(ShmArenaTest, AllocationsAreZerosAtKnownOffsets) {
  auto arena = ShmArena::Create().value();
  auto* const one = static_cast<std::byte*>(arena->Allocate(100).value());
  auto* const two = static_cast<std::byte*>(arena->Allocate(kPage + 1).value());
  EXPECT_EQ(one[99], std::byte{0});
  EXPECT_EQ(two[kPage], std::byte{0});
  EXPECT_EQ(arena->FindOffset(one, 100), 0);
  EXPECT_EQ(arena->FindOffset(two + 64, kPage), int64_t{kPage} + 64);
  std::byte elsewhere{};
  EXPECT_EQ(arena->FindOffset(&elsewhere, 1), std::nullopt);
  EXPECT_EQ(arena->FindOffset(two, 3 * kPage), std::nullopt) << "too long";
  // What another maps is what is written here.
  two[5] = std::byte{9};
  auto mapping = SharedMapping::Map(arena->fd(), 3 * kPage);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->data()[kPage + 5], std::byte{9});
  arena->Free(one);
  arena->Free(two);
}

TEST(ShmArenaTest, WhatIsFreedIsUsedAgainAndReadsAsZeros) {
  auto arena = ShmArena::Create().value();
  std::vector<std::byte*> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(static_cast<std::byte*>(arena->Allocate(kPage).value()));
    all.back()[0] = std::byte{7};
  }
  // Neighbours in any order become one range.
  for (const int i : {1, 3, 2}) arena->Free(all[i]);
  auto* const large =
      static_cast<std::byte*>(arena->Allocate(3 * kPage).value());
  EXPECT_EQ(arena->FindOffset(large, 3 * kPage), int64_t{kPage});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(large[i * kPage], std::byte{0});
  EXPECT_EQ(all[0][0], std::byte{7});
  EXPECT_EQ(SharedMemorySize(arena->fd()).value(), 4 * kPage);
}

TEST(ShmArenaTest, NoMemoryIsAnErrorAndLosesNothing) {
  LimitFileSizes();
  auto arena = ShmArena::Create().value();
  EXPECT_TRUE(
      absl::IsResourceExhausted(arena->Allocate(size_t{1} << 60).status()));
  EXPECT_TRUE(arena->Allocate(1).ok());
}

TEST(ShmArenaTest, AChildHasAnArenaOfItsOwn) {
  const int parents = ShmArena::OfProcess().value()->fd();
  EXPECT_EQ(ShmArena::OfProcess().value()->fd(), parents);
  auto* const kept =
      static_cast<char*>(ShmArena::OfProcess().value()->Allocate(1).value());
  kept[0] = 'k';
  auto arena = ShmArena::OfProcess().value();
  const pid_t child = fork();
  if (child == 0) {
    arena->Free(kept);  // a copy of the parent's tensor dies in the child
    _exit(ShmArena::OfProcess().value()->fd() == parents ? 1 : 0);
  }
  int end = 0;
  waitpid(child, &end, 0);
  EXPECT_EQ(end, 0);
  EXPECT_EQ(kept[0], 'k');
}

// Where ranks stand, as their common memory tells.

ShmSegment NewSegment(int size) {
  auto memory = ShmSegment::NewMemory(size);
  EXPECT_TRUE(memory.ok()) << memory.status();
  auto segment = ShmSegment::Map(*std::move(memory), size);
  EXPECT_TRUE(segment.ok()) << segment.status();
  return *std::move(segment);
}

TEST(ShmSegmentTest, AStateIsLeftOnce) {
  ShmSegment segment = NewSegment(3);
  segment.SetState(1, ShmRankState::kGaveUp, "the disk is full");
  segment.SetState(1, ShmRankState::kDied);
  segment.SetState(1, ShmRankState::kGaveUp, "something else");
  EXPECT_EQ(segment.state(0), ShmRankState::kPresent);
  EXPECT_EQ(segment.state(1), ShmRankState::kGaveUp);
  EXPECT_EQ(segment.reason(1), "the disk is full");
  EXPECT_EQ(segment.reason(0), "");
}

TEST(ShmSegmentTest, OfManyRanksSomeAreNamed) {
  ShmSegment segment = NewSegment(10);
  std::vector<int> ranks;
  for (int rank = 0; rank < segment.size(); ++rank) {
    segment.page(rank).pid = 70 + rank;
    ranks.push_back(rank);
  }
  EXPECT_EQ(NamesOfRanks(segment, {9}), "rank 9 (pid 79)");
  EXPECT_EQ(NamesOfRanks(segment, ranks),
            "ranks 0 (pid 70), 1 (pid 71), 2 (pid 72), 3 (pid 73), 4 (pid 74), "
            "5 (pid 75), 6 (pid 76), 7 (pid 77) and 2 more");
}

TEST(ShmSegmentTest, ALongReasonIsCut) {
  ShmSegment segment = NewSegment(1);
  segment.SetState(0, ShmRankState::kGaveUp, std::string(5000, 'x'));
  EXPECT_EQ(segment.reason(0), std::string(ShmRankPage::kReasonBytes - 1, 'x'));
}

// Threads of a rank may give up at once: one that waits for mail, and one that
// runs a collective.
TEST(ShmSegmentTest, OfReasonsGivenAtOnceOneIsKeptWhole) {
  constexpr int kRanks = 16;
  for (int round = 0; round < 10; ++round) {
    ShmSegment segment = NewSegment(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::atomic<int> ready{0};
      std::vector<std::thread> threads;
      for (const char letter : {'a', 'b', 'c'}) {
        threads.emplace_back([&, letter] {
          const std::string reason(1000, letter);
          ready.fetch_add(1);
          while (ready.load() < 3) std::this_thread::yield();
          segment.SetState(rank, ShmRankState::kGaveUp, reason);
        });
      }
      while (segment.state(rank) == ShmRankState::kPresent) {
        std::this_thread::yield();
      }
      const std::string first = segment.reason(rank);
      EXPECT_EQ(first, std::string(1000, first[0]));
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(segment.reason(rank), first);
    }
  }
}

}  // namespace
}  // namespace tandem
