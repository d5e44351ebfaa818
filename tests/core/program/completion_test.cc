// Scripts for shells, which bash and zsh run.

#include "core/program/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/core/program/shell_completion.h"
#include "tests/core/testing/test_files.h"

ABSL_FLAG(std::string, net, "cnn", "Network: [one] of 'a few'. And more.");
ABSL_FLAG(std::string, folder, "", "A folder.");
ABSL_FLAG(int, net_size, 3, "How large.");
ABSL_FLAG(bool, lamp, true, "A switch.");

namespace tandem::completion_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

FlagGuide Guide() {
  return {"",
          {{"Net",
            {{"net", true, {"cnn", "gpt2", "gpt_tiny"}},
             {"folder", false, {}, /*is_path=*/true}}}}};
}

std::string Script(const std::string& shell) {
  return CompletionScript(Guide(), "my-train", shell).value();
}

std::vector<std::string> Offered(const std::string& words) {
  return OfferedByBash(Script("bash"), words);
}

TEST(CompletionTest, BashCompletesNamesOfFlags) {
  EXPECT_THAT(Offered("my-train --ne"),
              UnorderedElementsAre("--net=", "--net_size="));
  EXPECT_THAT(Offered("my-train --net=cnn --net-s"),
              ElementsAre("--net_size="));
  EXPECT_THAT(Offered("my-train --lam"), ElementsAre("--lamp"));
  EXPECT_THAT(Offered("my-train --nol"), ElementsAre("--nolamp"));
  EXPECT_THAT(Offered("my-train --"),
              AllOf(Contains("--config="), Contains("--help="),
                    Contains("--lamp"), Contains("--print_config=")));
  EXPECT_THAT(Offered("my-train --qq"), IsEmpty());
}

TEST(CompletionTest, BashCompletesValues) {
  // "=" is a word of its own, unless COMP_WORDBREAKS is set otherwise.
  EXPECT_THAT(Offered("my-train --net ="),
              UnorderedElementsAre("cnn", "gpt2", "gpt_tiny"));
  EXPECT_THAT(Offered("my-train --net = gpt_"), ElementsAre("gpt_tiny"));
  EXPECT_THAT(Offered("my-train --net=gpt"),
              UnorderedElementsAre("--net=gpt2", "--net=gpt_tiny"));
  EXPECT_THAT(Offered("my-train --lamp = f"), ElementsAre("false"));
  EXPECT_THAT(Offered("my-train --net_size = "), IsEmpty());
  EXPECT_THAT(Offered("my-train --help = n"), ElementsAre("net"));
}

TEST(CompletionTest, BashCompletesPaths) {
  WriteBytes(TestPath("some file"), "");
  EXPECT_THAT(Offered("my-train --folder = some"), ElementsAre("some file"));
}

TEST(CompletionTest, ZshCompletesNamesOfFlags) {
  const auto offered = [](const std::string& line) {
    return OfferedByZsh(Script("zsh"), line);
  };
  EXPECT_THAT(offered("my-train --ne"), ElementsAre("--net", "--net_size"));
  EXPECT_THAT(offered("my-train --net=cnn --net_s"), ElementsAre("--net_size"));
  EXPECT_THAT(offered("my-train --"),
              UnorderedElementsAre("--net", "--net_size", "--folder", "--lamp",
                                   "--nolamp", "--config", "--help",
                                   "--print_config", "--completion"));
  EXPECT_THAT(offered("my-train --qq"), IsEmpty());
}

TEST(CompletionTest, ZshCompletesValuesAndPaths) {
  WriteBytes(TestPath("other file"), "");
  const auto offered = [](const std::string& line) {
    return OfferedByZsh(Script("zsh"), line, ZshUse::kFileOfFunctions);
  };
  EXPECT_THAT(offered("my-train --net="),
              ElementsAre("--net=cnn", "--net=gpt2", "--net=gpt_tiny"));
  EXPECT_THAT(offered("my-train --net=gpt_"), ElementsAre("--net=gpt_tiny"));
  EXPECT_THAT(offered("my-train --lamp --help=n"), ElementsAre("--help=net"));
  EXPECT_THAT(offered("my-train --net_size="), IsEmpty());
  EXPECT_THAT(offered("my-train --folder=othe"),
              ElementsAre("--folder=other\\ file"));
}

TEST(CompletionTest, ZshHasAnArgumentForEachFlag) {
  const std::string script = Script("zsh");
  EXPECT_THAT(script,
              AllOf(HasSubstr("#compdef my-train\n_my_train() {\n"),
                    HasSubstr("'--net=[Network\\: \\[one\\] of "
                              "'\\''a few'\\'']:value:(cnn gpt2 gpt_tiny)'"),
                    HasSubstr("'--folder=[A folder.]:value:_files'"),
                    HasSubstr("'--net_size=[How large.]:value:'"),
                    HasSubstr("'--lamp[A switch.]'"),
                    HasSubstr("'--nolamp[A switch.]'"),
                    HasSubstr("compdef _my_train 'my-train'\n")));
  // Each argument's line goes on, up to the last one.
  int arguments = 0;
  bool goes_on = false;
  for (absl::string_view line : absl::StrSplit(script, '\n')) {
    const bool is_argument = absl::ConsumePrefix(&line, "    '--");
    EXPECT_EQ(is_argument, goes_on) << line;
    goes_on = absl::ConsumeSuffix(&line, " \\");
    if (is_argument) EXPECT_EQ(line.back(), '\'') << line;
    arguments += is_argument ? 1 : 0;
  }
  EXPECT_GE(arguments, 9);
}

TEST(CompletionTest, AnotherShellIsRefused) {
  const absl::Status status =
      CompletionScript(Guide(), "train", "fish").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "--completion=fish: known shells: bash, zsh");
}

}  // namespace
}  // namespace tandem::completion_test
