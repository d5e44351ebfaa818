#include "tools/trainer/settings/setting.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::setting_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// What a kind reads, or the message.
template <typename Kind>
std::string ReadAndShow(const typename Kind::Flag& given) {
  typename Kind::Field field = Kind::Of({});
  const absl::Status read = Kind::Read("flag", given, &field);
  return read.ok() ? ToText(Kind::ValueOf(field)) : std::string(read.message());
}

TEST(SettingKinds, ReadAndShowTheSame) {
  EXPECT_EQ(ReadAndShow<setting::Switch>(true), "true");
  EXPECT_EQ(ReadAndShow<setting::Switch>(false), "false");
  EXPECT_EQ(ReadAndShow<setting::Integer>(-7), "-7");
  EXPECT_EQ(ReadAndShow<setting::Number>(0.05), "0.05");
  EXPECT_EQ(ReadAndShow<setting::Word>("sgd"), "sgd");
  EXPECT_EQ(ReadAndShow<setting::Seed>(7), "7");
  EXPECT_EQ(ReadAndShow<setting::Seed>(std::numeric_limits<uint64_t>::max()),
            "18446744073709551615");
  EXPECT_EQ(ReadAndShow<setting::Path>(""), "");
  EXPECT_EQ(ReadAndShow<setting::Path>("/a/b"), "/a/b");
}

TEST(SettingKinds, ListsHaveCommas) {
  EXPECT_EQ(ReadAndShow<setting::Words>(""), "");
  EXPECT_EQ(ReadAndShow<setting::Words>("fc.weight,fc.bias"),
            "fc.weight,fc.bias");
  EXPECT_EQ(ReadAndShow<setting::Numbers>("1,2.5"), "1,2.5");
  EXPECT_EQ(ReadAndShow<setting::Extents>("3,224,224"), "3,224,224");
  EXPECT_THAT(ReadAndShow<setting::Numbers>("1,x"),
              HasSubstr("--flag=1,x: takes numbers"));
  for (const char* wrong : {"3,0", "-1", "3,a", "2.5"}) {
    EXPECT_THAT(ReadAndShow<setting::Extents>(wrong),
                HasSubstr("takes positive whole numbers"));
  }
}

TEST(SettingRanges, NameTheFlagAndWhatItTakes) {
  EXPECT_TRUE(setting::AtLeast(0).Check("flag", 0).ok());
  EXPECT_EQ(setting::AtLeast(0).Check("flag", -1).message(),
            "--flag=-1: must be at least 0");
  EXPECT_TRUE(setting::Between(1, 3).Check("flag", 3).ok());
  EXPECT_EQ(setting::Between(1, 3).Check("flag", 4).message(),
            "--flag=4: must be from 1 to 3");
  EXPECT_EQ(setting::Between(1, 2000000).Check("flag", 3000000).message(),
            "--flag=3000000: must be from 1 to 2000000");
  EXPECT_EQ(setting::AtLeast(0.1).Check("flag", 0.01).message(),
            "--flag=0.01: must be at least 0.1");
  EXPECT_FALSE(setting::Between(1, 3)
                   .Check("flag", std::numeric_limits<double>::quiet_NaN())
                   .ok());
  EXPECT_TRUE(setting::EachBetween(1, 3).Check("flag", {}).ok());
  EXPECT_EQ(setting::EachBetween(1, 3).Check("flag", {1, 0}).message(),
            "--flag=0: must be from 1 to 3");
  EXPECT_EQ(setting::OneOf({"a", "b"}).Check("flag", "c").message(),
            "--flag=c: unknown; known: a, b");
  EXPECT_TRUE(setting::Any().Check("flag", "anything").ok());
}

TEST(SettingValuesTest, TellWhatDiffers) {
  const SettingValues usual = {
      {"a", int64_t{1}}, {"b", std::string("x")}, {"c", false}};
  SettingValues given = usual;
  EXPECT_THAT(Differing(given, usual), IsEmpty());
  given[0].second = int64_t{2};
  given[2].second = true;
  EXPECT_THAT(Differing(given, usual),
              ElementsAre(Pair("a", SettingValue(int64_t{2})),
                          Pair("c", SettingValue(true))));
}

}  // namespace
}  // namespace tandem::setting_test
