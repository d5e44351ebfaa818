#include "core/agreement/agreement.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

}  // namespace
}  // namespace tandem::agreement_test
