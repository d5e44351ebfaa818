// Sides made of shells: what happens when a rank answers, fails, ends, hangs.

#include "tools/bench/process/side.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/testing/statuses.h"
#include "tests/tools/bench/sides.h"

namespace tandem::side_test {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using testing::ElementsAre;

class SideTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<Side>> Start(const std::string& script,
                                              int ranks = 2) {
    return Side::Start(ShellRanks("shells", ranks, folder_, script));
  }

  const std::string folder_ = TestFolder();
};

// Answers each command with itself and the rank, amid other output.
constexpr char kEcho[] =
    "while read -r line; do echo noise; "
    "echo \"{\\\"rank\\\": $RANK, \\\"line\\\": \\\"$line\\\"}\"; "
    "done < \"$COMMANDS\"";

TEST_F(SideTest, EveryRankAnswersEveryCommand) {
  const auto side = Start(kEcho, /*ranks=*/3);
  ASSERT_TRUE(side.ok()) << side.status();
  for (const char* command : {"steps 3", "memory"}) {
    const auto answers = (*side)->Ask(command, seconds(30));
    ASSERT_TRUE(answers.ok()) << answers.status();
    ASSERT_EQ(answers->size(), 3u);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ((*answers)[rank].at("rank"), rank);
      EXPECT_EQ((*answers)[rank].at("line"), command);
    }
  }
}

TEST_F(SideTest, AnErrorIsHandedOnWithItsRank) {
  const auto side = Start(
      "read -r line < \"$COMMANDS\"; "
      "if [ $RANK = 1 ]; then echo '{\"error\": \"no luck\"}'; else sleep 60; "
      "fi");
  ASSERT_TRUE(side.ok()) << side.status();
  const absl::Status status = (*side)->Ask("steps 3", seconds(30)).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "shells: rank 1",
                               "no luck"));
}

TEST_F(SideTest, ARankThatEndsIsNamedWithItsLastWords) {
  const auto side =
      Start("echo 'out of sorts' >&2; [ $RANK = 0 ] && exit 3; sleep 60");
  ASSERT_TRUE(side.ok()) << side.status();
  const absl::Status status = (*side)->Ask("steps 3", seconds(30)).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "rank 0",
                               "exit code 3", "out of sorts"));
}

TEST_F(SideTest, ARankThatDoesNotAnswerIsNamedAfterTheTimeout) {
  // Both shells have begun when the timeout does.
  const auto side =
      Start(std::string("if [ $RANK = 1 ]; then read -r line < \"$COMMANDS\"; "
                        "echo '{}'; sleep 60; fi; ") +
            kEcho);
  ASSERT_TRUE(side.ok()) << side.status();
  ASSERT_TRUE((*side)->Ask("steps 1", seconds(30)).ok());
  const absl::Status status = (*side)->Ask("steps 3", seconds(1)).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, "from rank 1"));
}

TEST_F(SideTest, NoRankIsLeftWhenItGoes) {
  auto side = Start("echo \"{\\\"pid\\\": $$}\"; sleep 600");
  ASSERT_TRUE(side.ok()) << side.status();
  const auto answers = (*side)->Ask("pid", seconds(30));
  ASSERT_TRUE(answers.ok()) << answers.status();
  side->reset();
  for (const auto& answer : *answers) {
    EXPECT_NE(kill(answer.at("pid").get<pid_t>(), 0), 0);
  }
}

TEST_F(SideTest, RanksAreBoundToCoresUnlessThereAreTooFew) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const std::string tell =
      "for flag; do case $flag in --core=*) "
      "echo \"{\\\"core\\\": ${flag#*=}}\";; esac; done; sleep 60";
  const auto few = Start(tell, 1);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ((*few)->Ask("x", seconds(30)).value()[0].at("core"), 0);
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  const auto many = Start(tell, cores + 1);
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ((*many)->Ask("x", seconds(30)).value()[0].at("core"), -1);
}

TEST_F(SideTest, AProgramThatIsNotThereIsAnError) {
  SideOptions options;
  options.name = "nobody";
  options.folder = folder_;
  options.command = {"/no/such/program"};
  const absl::Status status = Side::Start(options).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound, "/no/such/program"));
}

TEST(Answers, AreTakenTogether) {
  const std::vector<json> answers = {{{"ms", 2.0}, {"losses", {0.0, 0.0}}},
                                     {{"ms", 4.0}, {"losses", {5.0, 6.0}}}};
  EXPECT_EQ(Greatest(answers, "ms"), 4);
  EXPECT_EQ(Mean(answers, "ms"), 3);
  EXPECT_THAT(SumOfLists(answers, "losses"), ElementsAre(5, 6));
}

}  // namespace
}  // namespace tandem::side_test
