#include "core/agreement/agreement.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/comm/group_connection.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/agreement/agreeing_ranks.h"

namespace tandem::agreement_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;

std::string Difference(const std::vector<NamedValues>& by_rank,
                       const std::vector<int>& names = {}) {
  const absl::Status compared = CompareValues(by_rank, names, "settings");
  EXPECT_EQ(compared.code(), absl::StatusCode::kInvalidArgument);
  return std::string(compared.message());
}

TEST(AgreementTest, AnyBytesGoThereAndBack) {
  const NamedValues values = {{"--seed", "0"},
                              {"empty", ""},
                              {"a tab\t, a line\n, \\n", "\xff\0x\t\n\\"},
                              {std::string("\0", 1), "umlaut \xc3\xa4"}};
  EXPECT_EQ(DecodeValues(EncodeValues(values)).value(), values);
  EXPECT_EQ(DecodeValues("").value(), NamedValues());
  for (const char* wrong : {"no value", "a\tb\tc", "a\t\\q"}) {
    EXPECT_EQ(DecodeValues(wrong).status().code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(AgreementTest, AFingerprintTellsNamesFromValues) {
  const std::string one = ValuesFingerprint({{"a", "b"}, {"c", "d"}});
  EXPECT_EQ(one, ValuesFingerprint({{"c", "d"}, {"a", "b"}}));
  EXPECT_NE(one, ValuesFingerprint({{"a", "b\tc"}, {"c", "d"}}));
  EXPECT_NE(one, ValuesFingerprint({{"a", "b\nc\td"}}));
  EXPECT_NE(one, ValuesFingerprint({{"a", "b"}}));
}

TEST(AgreementTest, SameValuesAreFine) {
  EXPECT_TRUE(CompareValues({}, {}, "settings").ok());
  EXPECT_TRUE(CompareValues({{{"a", "1"}}, {{"a", "1"}}}, {}, "settings").ok());
}

TEST(AgreementTest, ADifferenceNamesValueRanksAndBoth) {
  EXPECT_EQ(Difference({{{"--lr", "0.1"}, {"--seed", "0"}},
                        {{"--lr", "0.1"}, {"--seed", "5"}},
                        {{"--lr", "0.1"}, {"--seed", "0"}}}),
            "the ranks' settings differ: --seed is 0 on ranks 0, 2, 5 on rank "
            "1; give all ranks the same");
  EXPECT_THAT(Difference({{{"a", ""}}, {}, {{"a", "x"}}}),
              HasSubstr("a is (empty) on rank 0, not given on rank 1, x on "
                        "rank 2"));
  EXPECT_THAT(Difference({{{"a", "1"}}, {{"a", "2"}}}, {4, 7}),
              HasSubstr("a is 1 on rank 4, 2 on rank 7"));
  EXPECT_THAT(Difference({{{"a", "1"}, {"b", "1"}}, {{"a", "2"}, {"b", "3"}}}),
              HasSubstr("a is 1 on rank 0, 2 on rank 1; b is 1 on rank 0, 3 on "
                        "rank 1"));
}

TEST(AgreementTest, LongTextsAreShownWhereTheyDiffer) {
  const std::string same(500, '.');
  const std::string said = Difference({{{"device 0", same + "F1 B1" + same}},
                                       {{"device 0", same + "B1 F1" + same}}});
  EXPECT_THAT(said,
              AllOf(HasSubstr("....F1 B1..."), HasSubstr("....B1 F1...")));
  EXPECT_THAT(said, SizeIs(Lt(400)));
}

TEST(AgreementTest, ManyRanksAndDifferencesAreCutShort) {
  std::vector<NamedValues> by_rank(1000);
  for (int r = 0; r < 1000; ++r) {
    for (int v = 0; v < 100; ++v) {
      by_rank[r][std::to_string(v)] = std::to_string(r % 3 == 0 ? 0 : r);
    }
  }
  const std::string said = Difference(by_rank);
  EXPECT_THAT(said,
              AllOf(HasSubstr("0 is 0 on ranks 0, 3, 6, 9, 12, 15, 18, "
                              "21 and 326 more, 1 on rank 1, 2 on rank 2"),
                    HasSubstr("others elsewhere"),
                    HasSubstr("; and 92 more; give all")));
  EXPECT_THAT(said, SizeIs(Lt(2000)));
}

TEST(VerdictTest, IsTheFirstFailuresOrNone) {
  const std::string ok = EncodeStatus(absl::OkStatus());
  const std::string full =
      EncodeStatus(absl::ResourceExhaustedError("disk:\n7:full"));
  const std::string lost = EncodeStatus(absl::DataLossError("x"));
  EXPECT_EQ(Verdict({}), absl::OkStatus());
  EXPECT_EQ(Verdict({ok, ok, ok}), absl::OkStatus());
  EXPECT_EQ(Verdict({ok, full, lost}),
            absl::ResourceExhaustedError("rank 1: disk:\n7:full"));
  EXPECT_EQ(Verdict({lost}), absl::DataLossError("x"));
  EXPECT_EQ(Verdict({ok, "?"}).code(), absl::StatusCode::kInternal);
}

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
}  // namespace tandem::agreement_test
