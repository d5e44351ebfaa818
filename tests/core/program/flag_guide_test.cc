// What --help prints, whole and by topic.

#include "core/program/flag_guide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_split.h"
#include "core/launch/flags.h"

ABSL_FLAG(double, rate, 0.1, "How fast. More of it: it says much.");
ABSL_FLAG(std::string, place_of_a_name_that_is_long, "here",
          "Where it lies, in a sentence that is too long for a single line of "
          "a terminal of eighty columns, or of ninety.");
ABSL_FLAG(bool, rare, true, "A switch that few need.");
ABSL_FLAG(bool, alone, false, "In no group.");
ABSL_FLAG(std::string, pipes, "", "One of a|b <c.");
ABSL_FLAG(std::string, breaks, "a\nb", "Has two lines.");

namespace tandem::flag_guide_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

FlagGuide Guide() {
  FlagGuide guide = {"What it is.",
                     {{"Fast things", {{"rate", true}, {"rare"}}},
                      {"Places", {{"place_of_a_name_that_is_long", true}}},
                      {"Gone", {{"no_such_flag", true}}}},
                     {{"speed", "write --rate=NUMBER"}}};
  AddGroup(LaunchFlags(), &guide.groups);
  return guide;
}

std::string Topic(const std::string& topic) {
  const auto text = HelpOnTopic(Guide(), topic);
  return text.ok() ? *text : std::string(text.status().message());
}

TEST(FlagGuideTest, HelpShowsTheUsualFlagsByGroupInShort) {
  const std::string help = HelpText(Guide());
  EXPECT_THAT(
      help,
      AllOf(HasSubstr("What it is.\n"),
            HasSubstr("\nFast things\n  --rate=0.1               How fast.\n"
                      "\nPlaces\n  --place_of_a_name_that_is_long=here\n"
                      "                           Where it lies, in a "),
            HasSubstr("\nLaunch\n  --nproc_per_node         Start this many "),
            HasSubstr("\nOthers\n  --alone=false            In no group.\n"
                      "  --breaks=a\\nb            Has two lines.\n"),
            Not(HasSubstr("--rare")), Not(HasSubstr("More of it")),
            Not(HasSubstr("no_such_flag")), Not(HasSubstr("Gone")),
            HasSubstr("\n  --config=FILE ")));
  EXPECT_THAT(
      help,
      HasSubstr("of a group: fast_things, places,\nlaunch, others, all."));
}

TEST(FlagGuideTest, NoLineIsTooLong) {
  for (const std::string& help : {HelpText(Guide()), Topic("all"),
                                  Topic("launch"), HelpText({"What."})}) {
    for (const auto& line : absl::StrSplit(help, '\n')) {
      EXPECT_LE(line.size(), 79u) << line;
    }
  }
}

TEST(FlagGuideTest, AGroupIsShownInFull) {
  const std::string expected =
      "Fast things\n"
      "  --rate (default: 0.1)\n"
      "      How fast. More of it: it says much.\n"
      "  --rare (default: true)\n"
      "      A switch that few need.\n";
  for (const char* topic :
       {"fast_things", "Fast things", "fast-things", "fast"}) {
    EXPECT_EQ(Topic(topic), expected) << topic;
  }
}

TEST(FlagGuideTest, AFlagIsShownInFull) {
  const std::string expected =
      "  --rate (default: 0.1)\n"
      "      How fast. More of it: it says much.\n"
      "\nMore of the same: --help=fast_things\n";
  EXPECT_EQ(Topic("rate"), expected);
  EXPECT_EQ(Topic("--rate"), expected);
}

TEST(FlagGuideTest, AGroupCountsBeforeAFlagOfTheSameName) {
  FlagGuide guide = Guide();
  guide.groups[0].name = "Rate";
  EXPECT_THAT(*HelpOnTopic(guide, "rate"), HasSubstr("--rare"));
  EXPECT_THAT(*HelpOnTopic(guide, "--rate"), Not(HasSubstr("--rare")));
}

TEST(FlagGuideTest, AllIsEverythingInTheGroupsOrder) {
  const std::string all = Topic("all");
  std::vector<size_t> places;
  for (const char* part :
       {"What it is.", "\nFast things\n", "  --rate ", "  --rare ",
        "\nPlaces\n", "\nLaunch\n", "  --nproc_per_node", "  --dist_url",
        "\nOthers\n", "  --alone ", "  --config=FILE"}) {
    places.push_back(all.find(part));
    EXPECT_NE(places.back(), std::string::npos) << part;
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
}

TEST(FlagGuideTest, APageHasATableForEachGroup) {
  const std::string page = Topic("markdown");
  EXPECT_THAT(page, StartsWith("## Fast things\n\n| flag | default | |\n"
                               "|---|---|---|\n"
                               "| **`--rate`** | `0.1` | How fast. More of it: "
                               "it says much. |\n"
                               "| `--rare` | `true` | A switch that few need. "
                               "|\n\n## Places\n"));
  EXPECT_THAT(page, HasSubstr("| **`--pipes`** |  | One of a\\|b &lt;c. |\n"));
}

TEST(FlagGuideTest, AnUnknownTopicIsRefusedWithThoseThatThereAre) {
  const absl::Status status = HelpOnTopic(Guide(), "plases").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "--help=plases: no group of flags, and no flag; did you mean "
            "places? Known groups: fast_things, places, launch, others, all");
  EXPECT_EQ(Topic("speed"), "--help=speed: no flag: write --rate=NUMBER");
  EXPECT_THAT(Topic("--"), HasSubstr("Known groups"));
}

TEST(FlagGuideTest, WithoutGroupsFlagsAreListedByFile) {
  const FlagGuide plain = {"What it is."};
  const std::string help = HelpText(plain);
  EXPECT_THAT(help, AllOf(HasSubstr("What it is."),
                          HasSubstr("Flags of core/launch/flags.cc:"),
                          HasSubstr("\n  --rate (default: 0.1)\n"),
                          HasSubstr("A switch that few need."),
                          HasSubstr("\n  --alone")));
  for (const GuidedFlag& flag : LaunchFlags().flags) {
    EXPECT_THAT(help, HasSubstr("\n  --" + flag.name));
  }
  EXPECT_EQ(*HelpOnTopic(plain, "all"), help);
  EXPECT_EQ(*HelpOnTopic(plain, "rate"),
            "  --rate (default: 0.1)\n"
            "      How fast. More of it: it says much.\n");
}

TEST(FlagGuideTest, GroupsOfTheSameNameAreOne) {
  std::vector<FlagGroup> groups = {{"A", {{"rate"}}}};
  AddGroup({"B", {{"alone"}}}, &groups);
  AddGroup({"A", {{"rare"}}}, &groups);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].flags.size(), 2u);
  SetValues("rare", {"x", "y"}, &groups);
  EXPECT_THAT(groups[0].flags[1].values, ElementsAre("x", "y"));
}

}  // namespace
}  // namespace tandem::flag_guide_test
