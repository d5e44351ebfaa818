#include "core/store/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/testing/counting_store.h"

namespace tandem::gather_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Le;
using ::testing::Optional;

constexpr milliseconds kLong = std::chrono::minutes(10);

// What each of `size` ranks got, and how often it asked the store.
struct Rank {
  absl::StatusOr<GatheredTexts> got;
  int64_t operations = 0;
};

std::vector<Rank> GatherOn(int size) {
  const StorePtr store = NewHashStore(kLong);
  std::vector<Rank> ranks(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      CountingStore mine(store);
      // Two hosts; and names that could be taken for something else.
      ranks[rank].got = GatherAtStore(
          mine, "hosts", rank, size,
          rank % 2 == 0 ? "even: 3:abc" : std::string("odd\n\0", 5), kLong);
      ranks[rank].operations = mine.operations();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

TEST(StoreGatherTest, EveryRankGetsAllTextsInOrder) {
  for (const int size : {1, 2, 7}) {
    for (const Rank& rank : GatherOn(size)) {
      ASSERT_TRUE(rank.got.ok()) << rank.got.status();
      ASSERT_EQ(rank.got->size(), static_cast<size_t>(size));
      for (int r = 0; r < size; ++r) {
        EXPECT_THAT((*rank.got)[r],
                    Optional(r % 2 == 0 ? std::string("even: 3:abc")
                                        : std::string("odd\n\0", 5)));
      }
    }
  }
}

TEST(StoreGatherTest, OperationsOfARankDoNotGrowWithTheRanks) {
  for (const int size : {2, 8, 24}) {
    int64_t all = 0;
    for (const Rank& rank : GatherOn(size)) {
      EXPECT_THAT(rank.operations, Le(6));
      all += rank.operations;
    }
    EXPECT_EQ(all, 4 * size + 2);
  }
}

TEST(StoreGatherTest, ATimeoutTellsWhoHasCome) {
  const StorePtr store = NewHashStore(kLong);
  constexpr milliseconds kTimeout = std::chrono::seconds(2);  // to meet in
  std::thread other([&] {
    EXPECT_TRUE(GatherAtStore(*store, "k", 2, 3, "c", kTimeout).ok());
  });
  const auto got = GatherAtStore(*store, "k", 0, 3, "a", kTimeout);
  other.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(Optional(std::string("a")), std::nullopt,
                                Optional(std::string("c"))));
}

}  // namespace
}  // namespace tandem::gather_test
