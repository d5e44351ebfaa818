#include "tools/bench/micro/spawned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/testing/statuses.h"

namespace tandem {
namespace {

using testing::ElementsAre;

TEST(SpawnRanks, MeetInAStore) {
  const auto meet = [](const StorePtr& store, int rank) {
    return store->add("ranks", 1) > 3 || rank > 2
               ? absl::InternalError("too many")
               : absl::OkStatus();
  };
  EXPECT_TRUE(SpawnRanks(3, meet).ok());
  EXPECT_FALSE(SpawnRanks(4, meet).ok());
}

TEST(SpawnRanks, AnErrorOfARankIsHandedOn) {
  const absl::Status status = SpawnRanks(2, [](const StorePtr&, int rank) {
    return rank == 1 ? absl::AbortedError("no luck") : absl::OkStatus();
  });
  EXPECT_THAT(status, Says("no luck"));
}

TEST(MediansInTurns, LeaveTheFirstRoundOut) {
  std::string order;
  double next = 100;
  const auto medians =
      MediansInTurns(3, 2, [&](size_t way) -> absl::StatusOr<double> {
        order += way == 0 ? "a" : "b";
        return way == 0 ? next-- : 7;
      });
  ASSERT_TRUE(medians.ok()) << medians.status();
  EXPECT_THAT(*medians, ElementsAre(98, 7));  // of 99, 98, 97
  EXPECT_EQ(order, "abababab");
  const absl::Status error = absl::InternalError("broken");
  EXPECT_EQ(MediansInTurns(3, 2, [&](size_t) { return error; }).status(),
            error);
}

}  // namespace
}  // namespace tandem
