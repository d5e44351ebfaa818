// What the program advises is taken as it stands, one line after the other: the
// lines at the end of a run, and the examples of --help.

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem::advice_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;

// Takes a moment, and saves where a job does that is told nothing else.
const Flags kShort = {"--dataset=synthetic",    "--synthetic_shape=1,8,8",
                      "--synthetic_samples=32", "--batch_size=16",
                      "--intra_op_threads=1",   "--max_steps=1"};

constexpr char kPlace[] = "BUILD_WORKING_DIRECTORY";  // as Bazel says it

ProgramResult RunIn(const std::string& place, const Flags& flags) {
  ProgramOptions options;
  options.environment[kPlace] = place;
  return RunProgram(kTrain, flags, options);
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The flags of each of the last lines of a run.
std::vector<std::string> AdviceIn(const std::string& out) {
  std::vector<std::string> advice;
  bool begun = false;
  for (const std::string& line : LinesOf(out)) {
    const size_t flags = line.find("--");
    if (begun && flags != std::string::npos) {
      advice.push_back(line.substr(flags));
    }
    begun = begun || line.rfind("what to try next", 0) == 0;
  }
  return advice;
}

TEST(AdviceTest, EveryLineAtTheEndOfARunCanBeTyped) {
  const std::string place = NewFolder("advice");
  const ProgramResult first = RunIn(place, kShort);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::vector<std::string> advice = AdviceIn(first.out);
  EXPECT_EQ(advice.size(), 3u) << first.out;
  for (const std::string& flags : advice) {
    // By a shell, which a user types it into.
    std::string line = std::string(kPlace) + "=" + place + " " + kTrain;
    for (const std::string& flag : kShort) line += " " + flag;
    line += " " + flags + " >" + place + "/out 2>&1";
    EXPECT_EQ(std::system(line.c_str()), 0) << line << "\n"
                                            << FileContents(place + "/out");
  }
  EXPECT_THAT(NamesIn(place),
              AllOf(Contains("checkpoints"), Contains("two_ranks"),
                    Contains("resnet18")));
  EXPECT_THAT(NamesIn(place + "/checkpoints"), Contains("step-000000002"));
}

TEST(AdviceTest, EveryExampleOfHelpCanBeTyped) {
  const std::string place = NewFolder("examples");
  const ProgramResult help = RunProgram(kTrain, {"--help"});
  int examples = 0;
  for (const std::string& line : LinesOf(help.out)) {
    if (line.rfind("  train", 0) != 0) continue;
    // What it is stands behind two spaces or more.
    std::istringstream words(line.substr(2, line.find("  ", 2) - 2));
    std::string program;
    words >> program;
    Flags flags = kShort;
    for (std::string flag; words >> flag;) flags.push_back(flag);
    const ProgramResult result = RunIn(place, flags);
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.err;
    ++examples;
  }
  EXPECT_EQ(examples, 3) << help.out;
}

}  // namespace
}  // namespace tandem::advice_test
