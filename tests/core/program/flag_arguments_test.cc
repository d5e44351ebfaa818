// Arguments as Abseil takes them; what is refused is in command_line_test.

#include "core/program/flag_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/flags/flag.h"

ABSL_FLAG(int, two_words, 1, "a number");
ABSL_FLAG(bool, lamp, true, "a switch");

namespace tandem::flag_arguments_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(FlagArgumentsTest, AbseilsOwnFlagsAreKnownByTheirFile) {
  EXPECT_TRUE(IsAbseils("external/com_google_absl/absl/flags/parse.cc"));
  EXPECT_FALSE(IsAbseils("tools/train.cc"));
}

}  // namespace
}  // namespace tandem::flag_arguments_test
