// Arguments as Abseil takes them; what is refused is in command_line_test.

#include "core/program/flag_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "core/program/config_file.h"
#include "core/program/listed_flags.h"

ABSL_FLAG(int, two_words, 1, "a number");
ABSL_FLAG(bool, lamp, true, "a switch");

namespace tandem::flag_arguments_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<FlagArguments> Read(std::vector<std::string> args) {
  args.insert(args.begin(), "program");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  return ReadFlagArguments(static_cast<int>(argv.size()), argv.data());
}

TEST(FlagArgumentsTest, FlagsGetTheNamesAndValuesThatAbseilKnows) {
  const auto read =
      Read({"--two-words", "3", "file", "--no-lamp", "--", "--x"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->canonical,
              ElementsAre("program", "--two_words=3", "--lamp=false"));
  EXPECT_THAT(read->positional, ElementsAre("file", "--x"));
  EXPECT_FALSE(read->help.has_value());
}

TEST(FlagArgumentsTest, HelpIsAskedForAndNoFlag) {
  const auto read = Read({"-h"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->help, "");
  EXPECT_THAT(read->canonical, ElementsAre("program"));
}

TEST(FlagArgumentsTest, AValueOfAnotherTypeIsRefused) {
  const auto read = Read({"--two_words=many"});
  EXPECT_TRUE(absl::IsInvalidArgument(read.status()));
  EXPECT_THAT(std::string(read.status().message()),
              HasSubstr("--two_words=many: takes a whole number"));
}

std::string FlagFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(FlagArgumentsTest, TheCommandLineCountsBeforeAFileWhereverItStands) {
  const std::string path =
      FlagFile("job", "# of a job\n\n  --nolamp\r\ntwo-words = 7\n");
  for (const char* flag : {"--config", "--flagfile"}) {
    const auto read = Read({"--two_words=3", flag, path});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(read->canonical, ElementsAre("program", "--lamp=false",
                                             "--two_words=7", "--two_words=3"));
    EXPECT_TRUE(read->has_config);
  }
  EXPECT_FALSE(Read({"--lamp"})->has_config);
}

TEST(FlagArgumentsTest, AFileMayNameOneBeforeWhichItsOwnLinesCount) {
  FlagFile("base", "two_words=1\nlamp\n");
  const std::string variant = FlagFile("variant", "two_words=2\nconfig=base\n");
  const auto read = Read({"--config=" + variant});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->canonical, ElementsAre("program", "--two_words=1",
                                           "--lamp=true", "--two_words=2"));
  const std::string third = FlagFile("third", "config=variant\n");
  EXPECT_THAT(std::string(Read({"--config=" + third}).status().message()),
              HasSubstr("/variant:2: --config=base: a file that another one "
                        "names cannot name a further one"));
}

TEST(FlagArgumentsTest, OfSeveralFilesALaterOneCounts) {
  FlagFile("more.flags", "  # a comment\n\n  --two-words=5  \n--no-lamp");
  FlagFile("none.flags", "");
  // The variable as `bazel run` sets it.
  setenv("BUILD_WORKING_DIRECTORY", testing::TempDir().c_str(), 1);
  const auto read = Read({"--config=none.flags,more.flags",
                          "--config=" + FlagFile("last", "lamp=true")});
  unsetenv("BUILD_WORKING_DIRECTORY");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->canonical, ElementsAre("program", "--two_words=5",
                                           "--lamp=false", "--lamp=true"));
}

TEST(FlagArgumentsTest, ErrorsInAFileNameItAndTheLine) {
  const auto message = [](const std::string& path) {
    const absl::Status status = Read({"--config=" + path}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                StartsWith("--config=" + path + ": " + path + ":2: "));
    return std::string(status.message());
  };
  EXPECT_THAT(message(FlagFile("unknown", "\n--two_word=7\n")),
              HasSubstr("did you mean --two_words?"));
  EXPECT_THAT(message(FlagFile("typed", "#\ntwo_words=many\n")),
              HasSubstr("--two_words=many: takes a whole number"));
  EXPECT_THAT(message(FlagFile("valueless", "\ntwo_words\n")),
              HasSubstr("--two_words needs a value"));
  EXPECT_THAT(message(FlagFile("asks", "lamp\nhelp\n")),
              HasSubstr("--help is for the command line"));
  EXPECT_THAT(message(FlagFile("words", "lamp\ntwo words\n")),
              HasSubstr("'two words' is no flag: expected name=value"));
  const absl::Status none = Read({"--config=/no/such/file"}).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(std::string(none.message()),
              StartsWith("--config=/no/such/file: "));
  EXPECT_THAT(std::string(Read({"--config"}).status().message()),
              HasSubstr("--config needs a value: --config=FILE"));
}

TEST(FlagArgumentsTest, WhatElseIsAskedForIsNoFlag) {
  const auto read = Read({"--help=all", "--print-config", "--completion=zsh"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->help, "all");
  EXPECT_EQ(read->print_config, "");
  EXPECT_EQ(read->completion, "zsh");
}

TEST(FlagArgumentsTest, ANameOfAnotherProgramIsTranslated) {
  const std::vector<OtherFlagName> names = {{"words", "write --two_words=N"}};
  for (std::string given : {"--words=2", "--no-words"}) {
    std::string program = "program";
    std::vector<char*> argv = {program.data(), given.data()};
    const absl::Status status =
        ReadFlagArguments(2, argv.data(), names).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("words: write --two_words=N"));
  }
}

TEST(ConfigFileTest, WhatIsWrittenIsReadAgain) {
  const std::vector<std::string> values = {
      "",         "a b",           " a ",   "\"a\"", "\"",
      "a\nb\n#c", "a=b,c=d",       "#a",    "\\",    "\t",
      "\x7f",     "\xc3\xa9\x01f", "a # b", "'a'"};
  std::string text;
  for (const std::string& value : values) {
    text += ConfigLineText("name", value) + "\n";
  }
  const auto lines = ReadConfigFile(FlagFile("written", text));
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ((*lines)[i].argument, "--name=" + values[i]);
    EXPECT_EQ((*lines)[i].number, static_cast<int>(i) + 1);
  }
}

TEST(ConfigFileTest, WhatIsNoLineIsRefused) {
  for (const char* line : {"--", "=3", "a b=3", "a=\"b", "a=\"", "a=\"\\q\"",
                           "-", "\"a\"=3", "[section]"}) {
    const absl::Status status =
        ReadConfigFile(FlagFile("wrong", line)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << line << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/wrong:1: "));
  }
  const std::string large(size_t{1} << 21, '#');
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadConfigFile(FlagFile("large", large)).status()));
}

TEST(FlagArgumentsTest, AbseilsOwnFlagsAreKnownByTheirFile) {
  EXPECT_TRUE(IsAbseils("external/com_google_absl/absl/flags/parse.cc"));
  EXPECT_FALSE(IsAbseils("tools/train.cc"));
}

}  // namespace
}  // namespace tandem::flag_arguments_test
