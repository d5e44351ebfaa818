// Arguments as Abseil takes them; what is refused is in command_line_test.

#include "core/program/flag_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"

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
  EXPECT_FALSE(read->asks_for_help);
}

TEST(FlagArgumentsTest, HelpIsAskedForAndNoFlag) {
  const auto read = Read({"-h"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->asks_for_help);
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

TEST(FlagArgumentsTest, AFileOfFlagsStandsForItsLines) {
  const std::string inner = FlagFile("inner", "--two-words=7\n");
  const std::string outer = FlagFile(
      "outer", "# of a job\n\n  --nolamp\r\n--flagfile=" + inner + "\n");
  const auto read = Read({"--two_words=3", "--flagfile", outer, "--lamp"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->canonical,
              ElementsAre("program", "--two_words=3", "--lamp=false",
                          "--two_words=7", "--lamp=true"));
}

TEST(FlagArgumentsTest, AFileOfFlagsIsFoundFromWhereTheUserStands) {
  FlagFile("more.flags", "  # a comment\n\n  --two-words=5  \n--no-lamp");
  FlagFile("none.flags", "");
  // The variable as `bazel run` sets it.
  setenv("BUILD_WORKING_DIRECTORY", testing::TempDir().c_str(), 1);
  const auto read = Read({"--two-words=3", "--flagfile=none.flags,more.flags"});
  unsetenv("BUILD_WORKING_DIRECTORY");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->canonical, ElementsAre("program", "--two_words=3",
                                           "--two_words=5", "--lamp=false"));
}

TEST(FlagArgumentsTest, ErrorsInAFileOfFlagsNameIt) {
  const auto message = [](const std::string& path) {
    const absl::Status status = Read({"--flagfile=" + path}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                StartsWith("--flagfile=" + path + ": "));
    return std::string(status.message());
  };
  EXPECT_THAT(message(FlagFile("unknown", "--two_word=7\n")),
              HasSubstr("did you mean --two_words?"));
  EXPECT_THAT(message(FlagFile("typed", "--two_words=many\n")),
              HasSubstr("--two_words=many: takes a whole number"));
  EXPECT_THAT(message(FlagFile("word", "two_words=7\n")),
              HasSubstr("'two_words=7' is no flag"));
  const std::string self = testing::TempDir() + "/self";
  FlagFile("self", "--flagfile=" + self + "\n");
  EXPECT_THAT(message(self), HasSubstr("too deeply"));
  const absl::Status none = Read({"--flagfile=/no/such/file"}).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(std::string(none.message()),
              StartsWith("--flagfile=/no/such/file: "));
}

TEST(FlagArgumentsTest, AbseilsOwnFlagsAreKnownByTheirFile) {
  EXPECT_TRUE(IsAbseils("external/com_google_absl/absl/flags/parse.cc"));
  EXPECT_FALSE(IsAbseils("tools/train.cc"));
}

}  // namespace
}  // namespace tandem::flag_arguments_test
