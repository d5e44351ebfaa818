// Where ranks stand, as their common memory tells.

#include "core/shm/memory/segment.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/shm/memory/states.h"

namespace tandem {
namespace {

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
