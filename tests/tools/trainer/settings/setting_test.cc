#include "tools/trainer/settings/setting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "core/program/command_line.h"
#include "core/testing/statuses.h"
#include "tests/core/agreement/agreeing_ranks.h"
#include "tools/trainer/job/process.h"

namespace tandem::setting_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

// What a kind reads, or the message.
template <typename Kind>
std::string ReadAndShow(const typename Kind::Flag& given) {
  typename Kind::Field field = Kind::Of({});
  const absl::Status read = Kind::Read("flag", given, &field);
  return read.ok() ? ToText(Kind::ToValue(field)) : std::string(read.message());
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

TEST(SettingKinds, StepsAreARangeOrOne) {
  using setting::StepRange;
  EXPECT_EQ(StepRange::Of("3"), (setting::Steps{3, 3}));
  const auto shown = [](const char* given) {
    setting::Steps steps;
    const absl::Status read = StepRange::Read("flag", given, &steps);
    return read.ok() ? ToText(StepRange::ToValue(steps))
                     : std::string(read.message());
  };
  EXPECT_EQ(shown("10-12"), "10-12");
  EXPECT_EQ(shown("7"), "7");
  EXPECT_EQ(shown("7-7"), "7");
  for (const char* wrong : {"", "0", "-3", "3-", "5-4", "1-2-3", "0-2", "a-b",
                            "9223372036854775808", "1.5"}) {
    EXPECT_THAT(shown(wrong), HasSubstr("takes a step, counted from 1, or"))
        << wrong;
  }
}

TEST(SettingKinds, ANumberMayBeFoundOutLater) {
  using setting::IntegerOrAuto;
  EXPECT_EQ(IntegerOrAuto::Of("3"), 3);
  const auto shown = [](const char* given) {
    IntegerOrAuto::Field number = 7;
    const absl::Status read = IntegerOrAuto::Read("flag", given, &number);
    return read.ok() ? ToText(IntegerOrAuto::ToValue(number))
                     : std::string(read.message());
  };
  EXPECT_EQ(shown("-12"), "-12");
  EXPECT_EQ(shown("auto"), "auto");
  for (const char* wrong : {"", "Auto", "1.5", "4x", "9223372036854775808"}) {
    EXPECT_THAT(shown(wrong), HasSubstr("takes a whole number, or auto"))
        << wrong;
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
            "--flag=c: unknown; choose one of a, b");
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

// Sets a flag; the rest of the test's scope undoes it.
void Set(const std::string& flag, const std::string& value) {
  std::string error;
  ASSERT_TRUE(absl::FindCommandLineFlag(flag)->ParseFrom(value, &error))
      << flag << ": " << error;
}

// Another value that the flag takes.
std::string OtherValue(const absl::CommandLineFlag& flag) {
  for (const char* other : {"true", "3", "4", "0.75", "another"}) {
    const absl::FlagSaver undo;
    std::string error;
    auto* const same = absl::FindCommandLineFlag(flag.Name());
    const std::string before = same->CurrentValue();
    if (!same->ParseFrom(other, &error)) continue;
    if (same->CurrentValue() != before) return other;
  }
  return "false";
}

std::set<std::string> NamesOnTheList() {
  std::set<std::string> names;
  for (const PerRankFlag& each : PerRankFlags()) names.insert(each.name);
  return names;
}

// What three ranks say to each other when one flag of rank 1 is another.
std::vector<absl::Status> AgreeWithOther(const std::string& flag,
                                         const std::string& value) {
  const NamedValues usual = JobSettings().value();
  const absl::FlagSaver undo;
  Set(flag, value);
  return Agree({usual, JobSettings().value(), usual});
}

// Every flag that the program has, in turn: nobody keeps a list of them here.
TEST(SettingsAgreementTest, EveryFlagIsComparedOrOnTheList) {
  const std::map<std::string, std::string> flags = FlagValues();
  const std::set<std::string> may_differ = NamesOnTheList();
  int compared = 0;
  for (const auto& [name, usual] : flags) {
    const std::string other = OtherValue(*absl::FindCommandLineFlag(name));
    for (const absl::Status& said : AgreeWithOther(name, other)) {
      if (may_differ.count(name) > 0) {
        EXPECT_TRUE(said.ok()) << name << ": " << said;
        continue;
      }
      EXPECT_EQ(said.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(said,
                  Says(absl::StrCat("--", name, " is ",
                                    usual.empty() ? "not given" : usual,
                                    " on ranks 0, 2, ", other, " on rank 1")));
      ++compared;
    }
  }
  EXPECT_EQ(compared / 3 + may_differ.size(), flags.size());
  EXPECT_GT(compared / 3, 70);
  std::cout << compared / 3 << " flags are compared, " << may_differ.size()
            << " may differ\n";
}

TEST(SettingsAgreementTest, TheListNamesFlagsThatThereAreWithAReason) {
  for (const PerRankFlag& each : PerRankFlags()) {
    EXPECT_NE(absl::FindCommandLineFlag(each.name), nullptr) << each.name;
    EXPECT_NE(std::string(each.reason), "") << each.name;
  }
  EXPECT_EQ(NamesOnTheList().size(), PerRankFlags().size());
}

TEST(SettingsAgreementTest, ThePageOnLaunchingHasTheList) {
  std::ifstream page("docs/launching.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  const size_t begin = text.find("All flags are compared except these:");
  ASSERT_NE(begin, std::string::npos);
  const size_t end_of_table =
      text.find("The contents of a `--schedule`", begin);
  ASSERT_NE(end_of_table, std::string::npos);
  const std::string table = text.substr(begin, end_of_table - begin);
  std::set<std::string> named;
  const std::regex flag("`--([a-z_]+)`");
  for (std::sregex_iterator it(table.begin(), table.end(), flag), end;
       it != end; ++it) {
    named.insert((*it)[1]);
  }
  named.erase("reproducible");  // with which another is compared
  EXPECT_EQ(named, NamesOnTheList());
}

TEST(SettingsAgreementTest, ThreadsAreComparedWhereTheyShowInTheBits) {
  const absl::FlagSaver undo;
  EXPECT_TRUE(AgreeWithOther("intra_op_threads", "3")[0].ok());
  Set("reproducible", "true");
  EXPECT_THAT(AgreeWithOther("intra_op_threads", "3")[0].ToString(),
              HasSubstr("--intra_op_threads is 0 on ranks 0, 2, 3 on rank 1"));
}

std::string ScheduleFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(SettingsAgreementTest, OfAScheduleFileTheContentsAreCompared) {
  const absl::FlagSaver undo;
  const std::string text = "F0 F1 B0 B1\nF0 B0 F1 B1\n";
  Set("schedule", ScheduleFile("a.txt", text));
  const std::string elsewhere =
      ScheduleFile("b.txt", "# the same, elsewhere\n" + text);
  EXPECT_TRUE(AgreeWithOther("schedule", elsewhere)[1].ok());
  const std::string other = ScheduleFile("c.txt", "F0 F1 B0 B1\nF0 F1 B0 B1\n");
  EXPECT_THAT(
      AgreeWithOther("schedule", other)[2].ToString(),
      AllOf(HasSubstr("--schedule's device 1 is stages 1; 1F0 1B0 1F1 1B1 on "
                      "ranks 0, 2, stages 1; 1F0 1F1 1B0 1B1 on rank 1"),
            Not(HasSubstr("device 0"))));
  EXPECT_THAT(AgreeWithOther("schedule", "gpipe")[0].ToString(),
              HasSubstr("--schedule is a file on ranks 0, 2, gpipe on rank 1"));
  Set("schedule", "/no/such.txt");
  EXPECT_EQ(JobSettings().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::setting_test
