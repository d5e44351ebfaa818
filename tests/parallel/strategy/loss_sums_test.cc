#include "parallel/step/loss_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"

namespace tandem::loss_sums_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(LossSumsTest, AddUpPartsOfOneRank) {
  LossSums sums;
  EXPECT_THAT(sums.sums(), IsEmpty());
  ASSERT_TRUE(sums.Sum({}, 3, nullptr).ok());
  EXPECT_THAT(sums.sums(), IsEmpty());
  ASSERT_TRUE(
      sums.Sum({{"b", 2, 1}, {"a", 0, 4}, {"b", 2, 2}, {"b", 0, 8}}, 3, nullptr)
          .ok());
  EXPECT_THAT(sums.sums(), ElementsAre(Pair("a", 4), Pair("b", 11)));
  ASSERT_TRUE(sums.Sum({{"a", 1, 5}}, 3, nullptr).ok());
  EXPECT_THAT(sums.sums(), ElementsAre(Pair("a", 5)));
}

// 1e17 + 9 + 9 depends on the order.
TEST(LossSumsTest, AreInTheOrderOfMicrobatches) {
  LossSums one;
  ASSERT_TRUE(
      one.Sum({{"a", 2, 9}, {"a", 1, 9}, {"a", 0, 1e17}}, 3, nullptr).ok());
  EXPECT_EQ(one.sums().at("a"), (1e17 + 9) + 9);
  EXPECT_NE(one.sums().at("a"), 1e17 + 18);
}

TEST(LossSumsTest, EveryRankHasAllNamesAndTheSameSums) {
  ExpectOk(RunThreadRanks(3, [](Communicator& world) -> absl::Status {
    LossSums sums;
    for (int step = 0; step < 2; ++step) {
      std::vector<LossSums::Part> parts;
      if (world.rank() < 2) parts.push_back({"first", world.rank(), 1});
      if (world.rank() == 2) parts.push_back({"last", 2, 4});
      TANDEM_RETURN_IF_ERROR(sums.Sum(parts, 3, &world));
      EXPECT_THAT(sums.sums(), ElementsAre(Pair("first", 2), Pair("last", 4)));
    }
    // A step may lack some, or all.
    TANDEM_RETURN_IF_ERROR(sums.Sum({}, 3, &world));
    EXPECT_THAT(sums.sums(), ElementsAre(Pair("first", 0), Pair("last", 0)));
    return absl::OkStatus();
  }));
}

TEST(LossSumsTest, ANameThatComesLaterIsRefused) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    LossSums sums;
    TANDEM_RETURN_IF_ERROR(sums.Sum({{"a", 0, 1}}, 1, &world));
    EXPECT_THAT(sums.Sum({{"b", 0, 1}}, 1, &world),
                Says("loss b was not there in the first step"));
    return absl::OkStatus();
  }));
}

// What one rank adds while it is alone is nothing that the others wait for.
TEST(LossSumsTest, StepsApartLeaveTheCommonNamesAlone) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) -> absl::Status {
    LossSums sums;
    if (world.rank() == 1) {
      TANDEM_RETURN_IF_ERROR(sums.Sum({{"early", 1, 5}}, 2, nullptr));
    }
    for (int step = 0; step < 2; ++step) {
      TANDEM_RETURN_IF_ERROR(
          sums.Sum({{"common", world.rank(), 1}}, 2, &world));
      EXPECT_THAT(sums.sums(), ElementsAre(Pair("common", 2)));
      if (world.rank() == 0) continue;
      TANDEM_RETURN_IF_ERROR(sums.Sum({{"own", 1, 3}}, 2, nullptr));
      EXPECT_THAT(sums.sums(), ElementsAre(Pair("common", 0), Pair("own", 3)));
    }
    return absl::OkStatus();
  }));
}

// A replica of two ranks, and both of its replicas.
TEST(LossSumsTest, EachGroupAgreesOnItsNames) {
  ExpectOk(RunThreadRanks(4, [](Communicator& world) -> absl::Status {
    const int first = world.rank() / 2 * 2;
    TANDEM_ASSIGN_OR_RETURN(
        const auto pipe,
        world.Subgroup({first, first + 1}, absl::StrCat("pipe ", first)));
    LossSums sums;
    std::vector<LossSums::Part> parts;
    if (world.rank() == 3) parts.push_back({"last", 3, 7});
    for (Communicator* group : {pipe.get(), &world, pipe.get()}) {
      TANDEM_RETURN_IF_ERROR(sums.Sum(parts, 4, group));
      const bool has = group == &world || first == 2;
      EXPECT_EQ(sums.sums().size(), has ? 1u : 0u);
      if (has) EXPECT_EQ(sums.sums().at("last"), 7);
    }
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::loss_sums_test
