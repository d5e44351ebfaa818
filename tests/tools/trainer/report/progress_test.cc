#include "tools/trainer/report/progress.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace tandem::progress_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A FILE* that writes into memory.
class MemoryFile {
 public:
  MemoryFile() : file_(open_memstream(&data_, &size_)) {}
  ~MemoryFile() {
    std::fclose(file_);
    std::free(data_);
  }
  std::FILE* get() { return file_; }
  std::string text() {
    std::fflush(file_);
    return std::string(data_, size_);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

TEST(ProgressBarTest, FillsWithWhatIsDone) {
  EXPECT_EQ(ProgressBar("epoch 1/3", 0, 8, "loss 2"),
            "epoch 1/3 [>                       ]   0% 0/8 loss 2");
  EXPECT_EQ(ProgressBar("epoch 1/3", 4, 8, "loss 1"),
            "epoch 1/3 [============>           ]  50% 4/8 loss 1");
  EXPECT_EQ(ProgressBar("epoch 1/3", 8, 8, ""),
            "epoch 1/3 [========================] 100% 8/8 ");
  EXPECT_EQ(ProgressBar("evaluation", 0, 0, ""),
            "evaluation [========================] 100% 0/0 ");
}

TEST(ProgressTest, RedrawsABarAtMostEveryTenthOfASecond) {
  MemoryFile file;
  Progress progress("epoch", 10, file.get(), /*terminal=*/true);
  const auto start = Progress::Clock::now() + seconds(1);
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
  Progress progress("epoch", 10, file.get(), /*terminal=*/true);
  const auto start = Progress::Clock::now() + seconds(1);
  progress.Update(1, "", start);
  progress.Clear();
  const std::string cleared = file.text();
  EXPECT_EQ(cleared.substr(cleared.size() - 4), "\r\x1b[K");
  progress.Update(2, "", start);
  EXPECT_NE(file.text().find("2/10"), std::string::npos);
}

TEST(ProgressTest, WritesPlainLinesSecondsApartWhereThereIsNoTerminal) {
  MemoryFile file;
  // It counts from a time between these two.
  const auto before = Progress::Clock::now();
  Progress progress("epoch", 10, file.get(), /*terminal=*/false);
  const auto start = Progress::Clock::now();
  progress.Update(1, "loss 2", before + seconds(1));
  EXPECT_EQ(file.text(), "");
  progress.Update(5, "loss 1", start + seconds(6));
  EXPECT_EQ(file.text(), "epoch: 50% (5/10) loss 1\n");
  progress.Update(6, "loss 1", start + seconds(7));
  EXPECT_EQ(file.text(), "epoch: 50% (5/10) loss 1\n");
}

}  // namespace
}  // namespace tandem::progress_test
