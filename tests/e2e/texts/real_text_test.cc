// The commands of docs/large_models.md as they stand there: from a text to a
// model's own, on one rank, as a pipeline and as a hybrid.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/program.h"
#include "tests/e2e/texts/documented_commands.h"
#include "tests/e2e/train/runs.h"

namespace tandem::real_text_test {
namespace {

using ::testing::DoubleNear;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::StartsWith;

constexpr int kSteps = 4;
constexpr char kText[] = "third_party/king_james_bible/king_james_bible.txt";

// What is added to a command, so that it takes a moment: how long it trains,
// and how much is held out to be scored.
Flags Shortening(const std::string& program) {
  if (program == "tools/tokenize") return {"--validation_fraction=0.001"};
  if (program == "tools/train") {
    return {absl::StrCat("--max_steps=", kSteps), "--lr_warmup_steps=2"};
  }
  return {};
}

// A folder to stand in, where the text is as after `bazel build`.
std::string NewPlace() {
  const std::string place = NewFolder("real_text");
  std::string path = place;
  for (const char* folder : {"/bazel-bin", "/third_party"}) {
    path += folder;
    EXPECT_EQ(mkdir(path.c_str(), 0755), 0);
  }
  path += "/king_james_bible";
  EXPECT_EQ(mkdir(path.c_str(), 0755), 0);
  path += "/king_james_bible.txt";
  EXPECT_EQ(symlink(Runfile(kText).c_str(), path.c_str()), 0);
  return place;
}

ProgramResult RunShortened(const std::string& place,
                           const DocumentedCommand& command,
                           const Flags& more = {}) {
  Flags flags = Shortening(command.program);
  flags.insert(flags.end(), more.begin(), more.end());
  return RunIn(place, command, flags);
}

std::vector<DocumentedCommand> Commands() {
  return CommandsBelow("From a text to a text",
                       FileContents(Runfile("docs/large_models.md")));
}

// The job's own, without its layout and where it writes.
Flags Recipe(const DocumentedCommand& command) {
  Flags recipe;
  for (const std::string& flag : command.arguments) {
    const bool is_place = absl::StartsWith(flag, "--nproc_per_node=") ||
                          absl::StartsWith(flag, "--pipe=") ||
                          absl::StartsWith(flag, "--save_dir=") ||
                          absl::StartsWith(flag, "--metrics_file=");
    if (!is_place) recipe.push_back(flag);
  }
  return recipe;
}

std::vector<double> Losses(const Events& events) {
  std::vector<double> losses;
  for (const nlohmann::json& step : EventsOf(events, "step")) {
    losses.push_back(step["loss"]);
  }
  return losses;
}

TEST(RealText, IsWhole) {
  const std::string text = FileContents(Runfile(kText));
  EXPECT_EQ(text.size(), 4404475u);
  // A title, and the 31102 verses that the book has.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 31102);
  EXPECT_THAT(text, HasSubstr("\nGe1:1 In the beginning God created the heaven "
                              "and the earth.\n"));
  EXPECT_THAT(text, EndsWith("\nRev22:21 The grace of our Lord Jesus Christ be "
                             "with you all. Amen.\n"));
}

TEST(RealText, FiveCommandsTrainOneJobInThreeLayouts) {
  const std::vector<DocumentedCommand> commands = Commands();
  ASSERT_EQ(commands.size(), 5u);
  EXPECT_EQ(commands.front().program, "tools/tokenize");
  EXPECT_EQ(commands.back().program, "tools/generate");
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(commands[i].program, "tools/train");
    EXPECT_EQ(Recipe(commands[i]), Recipe(commands[1]));
  }
}

TEST(RealText, IsLearntAlikeInEveryLayoutAndGoneOnWith) {
  const std::string place = NewPlace();
  ProgramResult last;
  for (const DocumentedCommand& command : Commands()) {
    last = RunShortened(place, command);
  }
  EXPECT_THAT(last.out, StartsWith("--- 1\nIn the beginning"));
  EXPECT_THAT(last.out, HasSubstr("--- 3\nIn the beginning"));
  EXPECT_GT(last.out.size(), 3 * std::string("--- 1\nIn the beginning").size() +
                                 100);  // of the model's own

  const Events one = ReadEvents(place + "/one.jsonl");
  const std::vector<double> losses = Losses(one);
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  EXPECT_GT(losses.front(), 5.5);  // 320 tokens that are as likely: 5.77
  EXPECT_LT(losses.back(), 4.5);
  for (const char* layout : {"pipeline", "hybrid"}) {
    SCOPED_TRACE(layout);
    const Events events =
        ReadEvents(absl::StrCat(place, "/", layout, ".jsonl"));
    EXPECT_EQ(events.front()["strategy"], layout);
    EXPECT_EQ(Losses(events), losses);
    EXPECT_EQ(Fingerprint(events), Fingerprint(one));
  }
}

// Sums are then in another order, and each layout cuts batches its own way.
TEST(RealText, IsLearntAlikeWithoutReproducibleBits) {
  const std::string place = NewPlace();
  const std::vector<DocumentedCommand> commands = Commands();
  RunShortened(place, commands[0]);
  for (int i = 1; i < 4; ++i) {
    RunShortened(place, commands[i],
                 {"--noreproducible", "--microbatch_size=0", "--max_steps=3"});
  }
  const std::vector<double> losses = Losses(ReadEvents(place + "/one.jsonl"));
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_LT(losses.back(), losses.front() - 0.5);
  for (const char* layout : {"pipeline", "hybrid"}) {
    EXPECT_THAT(Losses(ReadEvents(absl::StrCat(place, "/", layout, ".jsonl"))),
                Pointwise(DoubleNear(1e-3), losses))
        << layout;
  }
}

}  // namespace
}  // namespace tandem::real_text_test
