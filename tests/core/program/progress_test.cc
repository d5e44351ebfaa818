#include "core/program/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "absl/time/time.h"
#include "tests/core/program/memory_file.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Progress::Clock::time_point kStart(seconds(1000));

Progress::Options To(MemoryFile& file, bool terminal) {
  Progress::Options options;
  options.out = file.get();
  options.terminal = terminal;
  options.start = kStart;
  return options;
}

ProgressState Stand(int64_t done, int64_t total, const std::string& note) {
  ProgressState state;
  state.what = "epoch 1/3";
  state.done = done;
  state.total = total;
  state.note = note;
  return state;
}

TEST(ProgressBarTest, FillsWithWhatIsDone) {
  EXPECT_EQ(ProgressBar(Stand(0, 8, "loss 2")),
            "epoch 1/3 [>                       ]   0% 0/8, loss 2");
  EXPECT_EQ(ProgressBar(Stand(4, 8, "loss 1")),
            "epoch 1/3 [============>           ]  50% 4/8, loss 1");
  EXPECT_EQ(ProgressBar(Stand(8, 8, "")),
            "epoch 1/3 [========================] 100% 8/8");
  EXPECT_EQ(ProgressBar(Stand(0, 0, "")),
            "epoch 1/3 [========================] 100% 0/0");
}

TEST(ProgressLineTest, SaysHowMuchIsLeft) {
  ProgressState state = Stand(2, 9, "saves");
  EXPECT_EQ(ProgressLine(state), "epoch 1/3: 22% (2/9): saves");
  state.left = absl::Seconds(420);
  EXPECT_EQ(ProgressLine(state),
            "epoch 1/3: 22% (2/9), about 7 min left: saves");
  state.left = absl::Seconds(40.2);
  EXPECT_EQ(ProgressBar(state),
            "epoch 1/3 [=====>                  ]  22% 2/9, about 40 s left, "
            "saves");
  state.unit = ProgressUnit::kBytes;
  state.done = 1234567;
  state.total = int64_t{1} << 60;  // 100 times as much is no number of 64 bits
  state.note = "";
  EXPECT_EQ(ProgressLine(state),
            "epoch 1/3: 0% (1.2/1152921504606.8 MB), about 40 s left");
}

TEST(ProgressTest, RedrawsABarAtMostEveryTenthOfASecond) {
  MemoryFile file;
  Progress progress("epoch", 10, To(file, /*terminal=*/true));
  const auto start = kStart + seconds(1);
  progress.Update(1, "", start);
  const std::string first = file.text();
  EXPECT_NE(first.find("1/10"), std::string::npos);
  progress.Update(2, "", start + milliseconds(50));
  EXPECT_EQ(file.text(), first);
  progress.Update(3, "", start + milliseconds(100));
  EXPECT_NE(file.text().find("3/10"), std::string::npos);
}

TEST(ProgressTest, ClearTakesTheBarAwayAndTheNextUpdateDrawsItAgain) {
  MemoryFile file;
  Progress progress("epoch", 10, To(file, /*terminal=*/true));
  const auto start = kStart + seconds(1);
  progress.Update(1, "", start);
  progress.Clear();
  const std::string cleared = file.text();
  EXPECT_EQ(cleared.substr(cleared.size() - 4), "\r\x1b[K");
  progress.Update(2, "", start);
  EXPECT_NE(file.text().find("2/10"), std::string::npos);
}

TEST(ProgressTest, WritesPlainLinesSecondsApartWhereThereIsNoTerminal) {
  MemoryFile file;
  Progress progress("epoch", 10, To(file, /*terminal=*/false));
  progress.Update(1, "loss 2", kStart + seconds(1));
  EXPECT_EQ(file.text(), "");
  progress.Update(5, "loss 1", kStart + seconds(6));
  const std::string line = "epoch: 50% (5/10), about 6 s left: loss 1\n";
  EXPECT_EQ(file.text(), line);
  progress.Update(6, "loss 1", kStart + seconds(7));
  EXPECT_EQ(file.text(), line);
}

TEST(ProgressTest, EveryPartThatBeginsHasALine) {
  MemoryFile file;
  Progress progress("jobs", 2, To(file, /*terminal=*/false));
  progress.BeginPart("one", kStart);
  progress.BeginPart("other", kStart + seconds(40));
  EXPECT_EQ(file.text(),
            "jobs: 0% (0/2): one\njobs: 50% (1/2), about 40 s left: other\n");
}

}  // namespace
}  // namespace tandem
