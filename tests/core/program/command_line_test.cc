#include "core/program/command_line.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "core/base/edit_distance.h"
#include "core/launch/flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(std::string, save_dir, "", "A text.");
ABSL_FLAG(double, learning_rate, 0.1, "A number.");
ABSL_FLAG(bool, drop_last, true, "A switch.");

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

absl::StatusOr<std::vector<std::string>> Parse(std::vector<std::string> args) {
  std::vector<char*> argv = {const_cast<char*>("program")};
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  return ParseCommandLine(static_cast<int>(argv.size()) - 1, argv.data(),
                          "What it is.");
}

TEST(CommandLineTest, HyphensStandForUnderscoresInNames) {
  ASSERT_TRUE(
      Parse({"--nproc-per-node=3", "--save-dir", "a-b_c", "--node_rank", "1"})
          .ok());
  EXPECT_EQ(LaunchSettingsFromFlags().nproc_per_node, 3);
  EXPECT_EQ(LaunchSettingsFromFlags().node_rank, 1);
  EXPECT_EQ(LaunchSettingsFromFlags().nnodes, std::nullopt);
  EXPECT_EQ(absl::GetFlag(FLAGS_save_dir), "a-b_c");
}

TEST(CommandLineTest, ValuesKeepTheirHyphens) {
  ASSERT_TRUE(Parse({"--save-dir=--x-y=z", "--learning-rate", "-0.5"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_save_dir), "--x-y=z");
  EXPECT_EQ(absl::GetFlag(FLAGS_learning_rate), -0.5);
}

TEST(CommandLineTest, SwitchesNeedNoValue) {
  for (const char* off : {"--nodrop_last", "--no-drop-last",
                          "--drop_last=false", "-nodrop_last"}) {
    ASSERT_TRUE(Parse({"--drop-last"}).ok());
    EXPECT_TRUE(absl::GetFlag(FLAGS_drop_last));
    ASSERT_TRUE(Parse({off}).ok()) << off;
    EXPECT_FALSE(absl::GetFlag(FLAGS_drop_last)) << off;
  }
}

TEST(CommandLineTest, TheRestIsReturned) {
  EXPECT_THAT(*Parse({"a-b", "--drop_last", "c", "-", "--", "--no-such-flag"}),
              ElementsAre("a-b", "c", "-", "--no-such-flag"));
  EXPECT_THAT(*Parse({}), IsEmpty());
}

TEST(CommandLineTest, AnUnknownFlagSuggestsTheNearest) {
  EXPECT_THAT(Parse({"--nproc-per-nodes=2"}).status().message(),
              AllOf(HasSubstr("unknown flag --nproc_per_nodes"),
                    HasSubstr("did you mean --nproc_per_node?")));
  EXPECT_THAT(Parse({"--lr=0.1"}).status().message(),
              HasSubstr("did you mean --learning_rate?"));
  EXPECT_THAT(Parse({"--qqqqqqqq"}).status().message(),
              Not(HasSubstr("did you mean")));
  EXPECT_EQ(Parse({"--nosave_dir"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CommandLineTest, AWrongOrMissingValueNamesTheFlag) {
  EXPECT_EQ(Parse({"--learning_rate=fast"}).status().message(),
            "--learning_rate=fast: takes a number; the flag: A number.");
  EXPECT_THAT(Parse({"--rank=abc"}).status().message(),
              HasSubstr("--rank=abc: takes a whole number; the flag: "));
  EXPECT_THAT(Parse({"--rank=99999999999"}).status().message(),
              HasSubstr("--rank=99999999999: takes a whole number of at most "
                        "2147483647"));
  EXPECT_THAT(Parse({"--drop_last=maybe"}).status().message(),
              HasSubstr("--drop_last=maybe: takes true or false"));
  EXPECT_THAT(Parse({"--learning_rate", "--drop_last"}).status().message(),
              HasSubstr("--learning_rate needs a value"));
  EXPECT_THAT(Parse({"--rank"}).status().message(),
              HasSubstr("--rank needs a value"));
}

TEST(CommandLineTest, ValuesOfAllFlagsAreTexts) {
  ASSERT_TRUE(Parse({"--save_dir=x", "--nodrop_last", "--rank=3"}).ok());
  const std::map<std::string, std::string> values = FlagValues();
  EXPECT_EQ(values.at("save_dir"), "x");
  EXPECT_EQ(values.at("drop_last"), "false");
  EXPECT_EQ(values.at("rank"), "3");
  EXPECT_EQ(values.at("nnodes"), "");
  EXPECT_EQ(values.count("flagfile"), 0u);
}

TEST(CommandLineTest, AFileOfFlagsIsRelativeToWhereTheUserStands) {
  std::ofstream(testing::TempDir() + "/flags") << "save-dir=of_file\n";
  setenv("BUILD_WORKING_DIRECTORY", testing::TempDir().c_str(), 1);
  const absl::Status read = Parse({"--config=flags"}).status();
  unsetenv("BUILD_WORKING_DIRECTORY");
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(absl::GetFlag(FLAGS_save_dir), "of_file");
  EXPECT_THAT(Parse({"--flagfile"}).status().message(),
              HasSubstr("--flagfile needs a value"));
}

TEST(CommandLineTest, WhatHasAnotherValueThanUsualWasGiven) {
  ASSERT_TRUE(
      Parse({"--save_dir=", "--drop_last", "--learning_rate=0.5"}).ok());
  EXPECT_TRUE(CheckUseless({"save_dir", "drop_last"}, "it is not").ok());
  const absl::Status useless =
      CheckUseless({"save_dir", "learning_rate", "drop_last"}, "none is had");
  EXPECT_TRUE(absl::IsInvalidArgument(useless));
  EXPECT_EQ(useless.message(),
            "--learning_rate=0.5 was given, but none is had: leave it out");
}

TEST(CommandLineTest, AnotherProcessGetsWhatFilesSay) {
  const std::string path = testing::TempDir() + "/job";
  std::ofstream(path) << "save_dir=a b\n";
  std::vector<std::string> args = {"program", "--config=" + path,
                                   "--no-drop-last", "rest"};
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  const auto read =
      ReadCommandLine(static_cast<int>(argv.size()), argv.data(), {"What."});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->arguments, ElementsAre("program", "--save_dir=a b",
                                           "--drop_last=false", "--", "rest"));
  EXPECT_THAT(read->positional, ElementsAre("rest"));
  args = {"program", "--drop-last", "rest"};
  for (size_t i = 0; i < args.size(); ++i) argv[i] = args[i].data();
  EXPECT_THAT(ReadCommandLine(3, argv.data(), {"What."})->arguments,
              ElementsAre("program", "--drop-last", "rest"));
}

TEST(CommandLineTest, FlagsThatAreNotAtTheirDefaultsArePrinted) {
  const absl::FlagSaver undo;
  ASSERT_TRUE(Parse({"--save_dir= x ", "--drop_last", "--learning_rate=0.1",
                     "--rank=3", "--node_rank=", "--nproc_per_node="})
                  .ok());
  const FlagGuide guide = {
      "", {{"Places", {{"rank"}, {"save_dir"}}}, {"Rates", {{"drop_last"}}}}};
  EXPECT_EQ(ConfigText(guide, /*all=*/false),
            "# Places\nrank=3\nsave_dir=\" x \"\n");
  const std::string all = ConfigText(guide, /*all=*/true);
  EXPECT_THAT(
      all, AllOf(HasSubstr("\n\n# Rates\ndrop_last=true\n\n# Others\n"),
                 HasSubstr("\nlearning_rate=0.1\n"), HasSubstr("\nnnodes=\n")));
}

TEST(CommandLineDeathTest, HelpAndVersionExitWithSuccessOrAsAbseilDoes) {
  EXPECT_EXIT(Parse({"--help"}).IgnoreError(), ::testing::ExitedWithCode(0),
              "");
  EXPECT_EXIT(Parse({"--version"}).IgnoreError(), ::testing::ExitedWithCode(0),
              "");
  EXPECT_EXIT(Parse({"--helpfull"}).IgnoreError(), ::testing::ExitedWithCode(1),
              "");
}

TEST(CommandLineDeathTest, WhatIsAskedForIsPrintedAndEndsTheProcess) {
  EXPECT_EXIT(Parse({"--help=rank"}).IgnoreError(),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Parse({"--print_config=all"}).IgnoreError(),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Parse({"--completion=bash"}).IgnoreError(),
              ::testing::ExitedWithCode(0), "");
  EXPECT_THAT(Parse({"--print_config=some"}).status().message(),
              HasSubstr("--print_config=some: takes all"));
  EXPECT_THAT(Parse({"--completion=fish"}).status().message(),
              HasSubstr("known shells: bash, zsh"));
  EXPECT_THAT(Parse({"--help=rankk"}).status().message(),
              HasSubstr("did you mean rank?"));
}

TEST(EditDistanceTest, ANameIsNearOrAbbreviated) {
  const std::vector<std::string> known = {"learning_rate", "local_rank",
                                          "resnet18", "sgd"};
  EXPECT_EQ(NearestName("lr", known), "learning_rate");
  EXPECT_EQ(NearestName("lerning-rate", known), "learning_rate");
  EXPECT_EQ(NearestName("resnet-18", known), "resnet18");
  EXPECT_EQ(NearestName("adam", known), "");
  EXPECT_EQ(NearestName("x", {}), "");
  EXPECT_EQ(NearestName("patience", {"keep_best", "early_stopping_patience"}),
            "early_stopping_patience");
  EXPECT_EQ(NearestName("early_stop", {"keep_best", "early_stopping_patience"}),
            "early_stopping_patience");
  EXPECT_EQ(NearestName("warm", {"lr_warm", "warm_start"}), "");
}

TEST(NamesNearTest, EightAreNamedAndTheNearestComeFirst) {
  const std::vector<std::string> eight = {"h", "g", "f", "e",
                                          "d", "c", "b", "a"};
  EXPECT_EQ(NamesNear("a", eight, "all"), "h, g, f, e, d, c, b, a");
  std::vector<std::string> ten = eight;
  ten.insert(ten.end(), {"rank", "ranks_of_a_job"});
  EXPECT_EQ(NamesNear("ranks", ten),
            "rank, ranks_of_a_job, a, b, c, d, e, f and 2 more");
  EXPECT_EQ(NamesNear("rank", ten, "--help lists all"),
            "rank, ranks_of_a_job, a, b, c, d, e, f and 2 more (--help lists "
            "all)");
}

TEST(EditDistanceTest, CountsInsertionsRemovalsAndReplacements) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("", "ab"), 2);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("rank", "rnak"), 2);
}

}  // namespace
}  // namespace tandem
