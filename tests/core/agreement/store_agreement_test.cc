#include "core/agreement/store_agreement.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/testing/counting_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/agreement/agreeing_ranks.h"

namespace tandem::store_agreement_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kTimeout(30);

std::vector<NamedValues> SameOn(int ranks) {
  return std::vector<NamedValues>(
      ranks, {{"--seed", "0"}, {"--batch_size", "64"}, {"--resume", ""}});
}

// `n` clients of one store of each kind.
std::vector<std::vector<StorePtr>> AllKinds(int n) {
  const HostedStore served = ServeTcpStore("127.0.0.1", 0, kTimeout).value();
  const std::string file =
      std::string(getenv("TEST_TMPDIR")) + "/store" + std::to_string(n);
  std::vector<std::vector<StorePtr>> kinds(3);
  const StorePtr hash = NewHashStore(kTimeout);
  for (int r = 0; r < n; ++r) {
    kinds[0].push_back(hash);
    kinds[1].push_back(
        r == 0 ? served.store
               : ConnectTcpStore("127.0.0.1", served.port, kTimeout).value());
    kinds[2].push_back(OpenFileStore(file, r, n, "", kTimeout).value());
  }
  return kinds;
}

TEST(StoreAgreementTest, RanksWithTheSameValuesAgree) {
  for (const auto& stores : AllKinds(3)) {
    for (const absl::Status& said : AgreeThrough(stores, SameOn(3))) {
      EXPECT_TRUE(said.ok()) << said;
    }
  }
  EXPECT_TRUE(Agree(SameOn(1))[0].ok());
}

TEST(StoreAgreementTest, ADifferenceIsToldToEveryRank) {
  std::vector<NamedValues> values = SameOn(4);
  values[2]["--seed"] = "5";
  values[3].erase("--resume");
  for (const auto& stores : AllKinds(4)) {
    for (const absl::Status& said : AgreeThrough(stores, values)) {
      EXPECT_EQ(said.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(
          std::string(said.message()),
          AllOf(HasSubstr("--seed is 0 on ranks 0, 1, 3, 5 on rank 2"),
                HasSubstr("--resume is (empty) on ranks 0, 1, 2, not given on "
                          "rank 3"),
                Not(HasSubstr("--batch_size"))));
    }
  }
}

TEST(StoreAgreementTest, WhoSaysNothingIsNamed) {
  for (const int absent : {0, 2}) {
    std::vector<StorePtr> stores(3, NewHashStore(kTimeout));
    stores[absent] = nullptr;
    const auto said = AgreeThrough(stores, SameOn(3), std::chrono::seconds(2));
    for (int r = 0; r < 3; ++r) {
      if (r == absent) continue;
      EXPECT_EQ(said[r].code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(
          std::string(said[r].message()),
          AllOf(HasSubstr("within 2s"),
                HasSubstr("not heard of: rank " + std::to_string(absent))));
    }
  }
}

int64_t OperationsOf(const std::vector<NamedValues>& values) {
  const auto store = c10::make_intrusive<CountingStore>(NewHashStore(kTimeout));
  AgreeThrough(std::vector<StorePtr>(values.size(), store), values);
  return store->operations();
}

// A list takes four of each rank, and two more of its last one
// (core/store/gather.h).
int64_t OperationsOfLists(int lists, int ranks) {
  return lists * (4 * ranks + 2);
}

TEST(StoreAgreementTest, ManyRanksAskTheStoreForAFewThingsEach) {
  for (const int n : {4, 32, 128}) {
    EXPECT_EQ(OperationsOf(SameOn(n)), OperationsOfLists(1, n)) << n;
    std::vector<NamedValues> values = SameOn(n);
    values[1]["--seed"] = "5";
    EXPECT_EQ(OperationsOf(values), OperationsOfLists(3, n)) << n;
  }
}

}  // namespace
}  // namespace tandem::store_agreement_test
