// The trainer's guide: every flag has one group, what --help shows is short
// enough to be read, and other programs' names lead to flags that there are.

#include "tools/trainer/train_guide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/program/completion.h"
#include "core/program/flag_guide.h"
#include "core/program/listed_flags.h"
#include "tests/core/program/shell_completion.h"
#include "tests/core/testing/test_files.h"
#include "tools/trainer/settings/other_names.h"

namespace tandem::train_guide_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const FlagGuide& Guide() {
  static const auto* const guide = new FlagGuide(TrainGuide("Trains."));
  return *guide;
}

std::vector<absl::string_view> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n');
}

TEST(TrainGuideTest, EveryFlagIsInOneGroup) {
  std::map<std::string, int> groups_of;
  for (const FlagGroup& group : Guide().groups) {
    EXPECT_FALSE(group.flags.empty()) << group.name;
    for (const GuidedFlag& each : group.flags) ++groups_of[each.name];
  }
  for (const auto& [name, flag] : ListedFlags()) {
    EXPECT_EQ(groups_of[name], 1)
        << "--" << name << ": put GROUP before its row, or name it in "
        << "LaunchFlags or RehearsalFlags";
  }
  EXPECT_EQ(groups_of.size(), ListedFlags().size());
}

// The last group that TrainGuide places: another one would come behind it.
TEST(TrainGuideTest, EveryGroupHasItsPlace) {
  EXPECT_EQ(Guide().groups.front().name, "Model");
  EXPECT_EQ(Guide().groups.back().name, "Rehearsal")
      << "give the group a place in train_guide.cc";
}

TEST(TrainGuideTest, HelpIsShort) {
  int usual = 0;
  for (const FlagGroup& group : Guide().groups) {
    for (const GuidedFlag& each : group.flags) usual += each.is_usual ? 1 : 0;
  }
  EXPECT_GE(usual, 40);
  EXPECT_LE(usual, 60);
  const std::string help = HelpText(Guide());
  EXPECT_LE(Lines(help).size(), 200u) << help;
  EXPECT_THAT(help, HasSubstr("\n  --epochs=1 "));
  EXPECT_THAT(help, Not(HasSubstr("--sim_delay_us")));
}

TEST(TrainGuideTest, NoLineOfHelpIsTooLong) {
  std::vector<std::string> texts = {HelpText(Guide()),
                                    *HelpOnTopic(Guide(), "all")};
  for (const FlagGroup& group : Guide().groups) {
    texts.push_back(*HelpOnTopic(Guide(), group.name));
  }
  for (const std::string& text : texts) {
    for (const absl::string_view line : Lines(text)) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(TrainGuideTest, TheTablesOrderIsKept) {
  const std::string all = *HelpOnTopic(Guide(), "all");
  size_t before = 0;
  for (const char* flag :
       {"model", "layers", "dataset", "epochs", "optimizer", "dtype",
        "strategy", "schedule", "nproc_per_node", "save_dir", "log_every"}) {
    const bool has_default = flag != absl::string_view("nproc_per_node");
    const size_t here =
        all.find(absl::StrCat("\n  --", flag, has_default ? " " : "\n"));
    ASSERT_NE(here, std::string::npos) << flag;
    EXPECT_GT(here, before) << flag;
    before = here;
  }
}

TEST(TrainGuideTest, OtherNamesAreNoFlagsAndLeadToFlags) {
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  const std::regex named("--([a-z0-9_]+)");
  std::set<std::string> seen;
  for (const OtherFlagName& each : OtherNames()) {
    EXPECT_TRUE(seen.insert(each.name).second) << each.name << " stands twice";
    EXPECT_EQ(flags.count(each.name), 0u) << each.name << " is a flag";
    const std::string& advice = each.advice;
    EXPECT_THAT(advice, testing::AnyOf(HasSubstr("write --"),
                                       HasSubstr("leave it out")));
    for (auto found = std::sregex_iterator(advice.begin(), advice.end(), named);
         found != std::sregex_iterator(); ++found) {
      EXPECT_EQ(flags.count((*found)[1]), 1u)
          << "--" << each.name << ": " << advice;
    }
  }
}

// docs/flags.md is the guide's page.
TEST(TrainGuideTest, TheDocumentsListEveryFlag) {
  std::stringstream page;
  page << std::ifstream("docs/flags.md").rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("## Model\n");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_TRUE(text.substr(begin) == HelpMarkdown(Guide()))
      << "docs/flags.md is not as the flags are: write it anew, as it says";
}

TEST(TrainGuideTest, ShellsCompleteValues) {
  const std::string bash = *CompletionScript(Guide(), "train", "bash");
  const std::string zsh = *CompletionScript(Guide(), "train", "zsh");
  WriteBytes(TestPath("saved_before"), "");
  struct Case {
    std::string flag;
    std::string begun;
    std::vector<std::string> offered;
  };
  for (const Case& each :
       std::vector<Case>{{"--model", "gpt2-m", {"gpt2-medium"}},
                         {"--dataset", "cifar", {"cifar10", "cifar100"}},
                         {"--optimizer", "ad", {"adam", "adamw"}},
                         {"--strategy", "parameter", {"parameter_server"}},
                         {"--schedule", "gp", {"gpipe"}},
                         {"--save_dir", "saved_b", {"saved_before"}},
                         {"--resume", "saved_b", {"saved_before"}}}) {
    EXPECT_EQ(OfferedByBash(
                  bash, absl::StrCat("train ", each.flag, " = ", each.begun)),
              each.offered);
    std::vector<std::string> whole;
    for (const std::string& value : each.offered) {
      whole.push_back(absl::StrCat(each.flag, "=", value));
    }
    EXPECT_EQ(
        OfferedByZsh(zsh, absl::StrCat("train ", each.flag, "=", each.begun)),
        whole);
  }
}

}  // namespace
}  // namespace tandem::train_guide_test
