#include "tools/trainer/settings/settings_agreement.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "core/program/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/agreement/agreeing_ranks.h"

namespace tandem::settings_agreement_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  for (const FlagOfRank& each : FlagsOfRanks()) names.insert(each.name);
  return names;
}

// What three ranks say to each other when one flag of rank 1 is another.
std::vector<absl::Status> AgreeWithOther(const std::string& flag,
                                         const std::string& value) {
  const NamedValues usual = SettingsOfJob().value();
  const absl::FlagSaver undo;
  Set(flag, value);
  return Agree({usual, SettingsOfJob().value(), usual});
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
      EXPECT_THAT(std::string(said.message()),
                  HasSubstr(absl::StrCat(
                      "--", name, " is ", usual.empty() ? "not given" : usual,
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
  for (const FlagOfRank& each : FlagsOfRanks()) {
    EXPECT_NE(absl::FindCommandLineFlag(each.name), nullptr) << each.name;
    EXPECT_NE(std::string(each.reason), "") << each.name;
  }
  EXPECT_EQ(NamesOnTheList().size(), FlagsOfRanks().size());
}

TEST(SettingsAgreementTest, ThePageOnLaunchingHasTheList) {
  std::ifstream page("docs/launching.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  const size_t begin = text.find("Compared are all flags but these:");
  ASSERT_NE(begin, std::string::npos);
  const std::string table =
      text.substr(begin, text.find("Of a `--schedule`", begin) - begin);
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
  EXPECT_EQ(SettingsOfJob().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::settings_agreement_test
