#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "parallel/parameter_server/server.h"

namespace tandem::worker_progress_test {
namespace {

using Push = WorkerProgress::Push;

// Workers that have done so many steps each.
WorkerProgress After(int64_t max_staleness, const std::vector<int>& pushed) {
  WorkerProgress progress(static_cast<int>(pushed.size()), max_staleness);
  for (size_t w = 0; w < pushed.size(); ++w) {
    for (int i = 0; i < pushed[w]; ++i) progress.Advance(static_cast<int>(w));
  }
  return progress;
}

// By worker: 'g' may go on, '.' waits.
std::string WhoGoesOn(const WorkerProgress& progress) {
  std::string who;
  for (int w = 0; w < progress.workers(); ++w) {
    who += progress.MayGoOn(w) ? 'g' : '.';
  }
  return who;
}

// Bound, steps done, who may begin the next one.
using Row = std::tuple<int, std::vector<int>, std::string>;

TEST(WorkerProgressTest, TheBoundIsExact) {
  const std::vector<Row> table = {
      {0, {0}, "g"},         {0, {5}, "g"},          {0, {0, 0, 0}, "ggg"},
      {0, {1, 0, 1}, ".g."}, {0, {1, 1, 1}, "ggg"},  {1, {1, 0, 0}, "ggg"},
      {1, {2, 0, 1}, ".gg"}, {1, {2, 1, 1}, "ggg"},  {3, {3, 0}, "gg"},
      {3, {4, 0}, ".g"},     {3, {4, 1}, "gg"},      {3, {7, 4, 3, 8}, ".gg."},
      {-1, {1000, 0}, "gg"}, {-1, {0, 7, 1}, "ggg"},
  };
  for (const auto& [bound, pushed, who] : table) {
    EXPECT_EQ(WhoGoesOn(After(bound, pushed)), who)
        << "bound " << bound << ", " << testing::PrintToString(pushed);
  }
}

TEST(WorkerProgressTest, APushCountsOnce) {
  WorkerProgress progress(2, 0);
  EXPECT_EQ(progress.Classify(0, 1), Push::kNext);
  EXPECT_EQ(progress.Classify(0, 2), Push::kGap);
  progress.Advance(0);
  EXPECT_EQ(progress.Classify(0, 1), Push::kDuplicate);
  EXPECT_EQ(progress.Classify(0, 2), Push::kNext);
  EXPECT_EQ(progress.Classify(0, 3), Push::kGap);
  EXPECT_EQ(progress.Classify(1, 1), Push::kNext);
}

TEST(WorkerProgressTest, NobodyWaitsForTheDead) {
  WorkerProgress progress = After(1, {5, 2, 4});
  EXPECT_EQ(WhoGoesOn(progress), ".g.");
  progress.Drop(1);
  EXPECT_EQ(progress.living(), 2);
  EXPECT_FALSE(progress.lives(1));
  EXPECT_EQ(progress.slowest(), 4);
  EXPECT_TRUE(progress.MayGoOn(0));
  EXPECT_TRUE(progress.MayGoOn(2));
  progress.Drop(0);
  progress.Drop(2);
  EXPECT_EQ(progress.living(), 0);
  EXPECT_EQ(progress.slowest(), -1);
  EXPECT_EQ(progress.fastest(), 5);
}

TEST(WorkerProgressTest, GoesOnFromACheckpoint) {
  WorkerProgress progress(3, 2);
  progress.ResumeAt(40);
  EXPECT_EQ(progress.Classify(1, 40), Push::kDuplicate);
  EXPECT_EQ(progress.Classify(1, 41), Push::kNext);
  EXPECT_EQ(progress.slowest(), 40);
}

}  // namespace
}  // namespace tandem::worker_progress_test
