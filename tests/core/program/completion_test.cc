// Scripts for shells: bash runs them here where there is one; zsh's are looked
// at as text, and parsed by bash, whose quotes and blocks are the same.

#include "core/program/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

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

bool HasBash() {
  return std::system("bash -c 'complete -F f p' >/dev/null 2>&1") == 0;
}

std::string Script(const std::string& shell) {
  return CompletionScript(Guide(), "my-train", shell).value();
}

std::string Written(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// What bash offers for the words, of which the last one is being typed: what it
// would call is called.
std::vector<std::string> Offered(const std::string& words) {
  const std::string script = Script("bash");
  const std::string out = testing::TempDir() + "/offered";
  const std::string driver =
      "cd " + testing::TempDir() + "\nsource " + Written("script", script) +
      "\ncompopt() { :; }\nCOMP_WORDS=(" + words +
      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
      "registered=$(complete -p my-train)\n"
      "[[ $registered == *'-F _my_train my-train' ]] || exit 1\n"
      "_my_train\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const std::string command = "bash " + Written("driver", driver) + " >" + out;
  EXPECT_EQ(std::system(command.c_str()), 0) << words;
  std::stringstream text;
  text << std::ifstream(out).rdbuf();
  return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
}

TEST(CompletionTest, BashCompletesNamesOfFlags) {
  if (!HasBash()) GTEST_SKIP() << "no bash";
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
  if (!HasBash()) GTEST_SKIP() << "no bash";
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
  if (!HasBash()) GTEST_SKIP() << "no bash";
  Written("some file", "");
  EXPECT_THAT(Offered("my-train --folder = some"), ElementsAre("some file"));
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
  if (HasBash()) {
    EXPECT_EQ(std::system(("bash -n " + Written("_my_train", script)).c_str()),
              0);
  }
}

TEST(CompletionTest, AnotherShellIsRefused) {
  const absl::Status status =
      CompletionScript(Guide(), "train", "fish").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "--completion=fish: known shells: bash, zsh");
}

}  // namespace
}  // namespace tandem::completion_test
