#include "core/model/kept_statistics.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

namespace tandem::kept_statistics_test {
namespace {

SharedStatistics Of(int64_t count) {
  SharedStatistics statistics;
  statistics.count = count;
  return statistics;
}

// 0: nothing is replayed.
int64_t Next() {
  const std::optional<SharedStatistics> next = KeptStatistics::Next();
  return next.has_value() ? next->count : 0;
}

TEST(KeptStatisticsTest, AreReplayedInTheirOrderAsOftenAsOneLikes) {
  KeptStatistics kept;
  KeptStatistics::Note(Of(9));  // nobody records
  {
    const KeptStatistics::Recording recording(&kept);
    EXPECT_EQ(Next(), 0);
    KeptStatistics::Note(Of(1));
    KeptStatistics::Note(Of(2));
  }
  KeptStatistics::Note(Of(9));
  for (int pass = 0; pass < 2; ++pass) {
    const KeptStatistics::Replay replay(&kept);
    EXPECT_EQ(Next(), 1);
    EXPECT_EQ(Next(), 2);
    EXPECT_THROW(Next(), c10::Error);
  }
  EXPECT_EQ(Next(), 0);
}

TEST(KeptStatisticsTest, RecordingsNest) {
  KeptStatistics outer, inner;
  {
    const KeptStatistics::Recording all(&outer);
    KeptStatistics::Note(Of(1));
    const KeptStatistics::Recording some(&inner);
    KeptStatistics::Note(Of(2));
  }
  const KeptStatistics::Replay whole(&outer);
  EXPECT_EQ(Next(), 1);
  {
    const KeptStatistics::Replay part(&inner);
    EXPECT_EQ(Next(), 2);
  }
  EXPECT_EQ(Next(), 2);
}

TEST(KeptStatisticsTest, ARecordingKeepsWhatItsReplayGives) {
  KeptStatistics around, outer, inner;
  {
    const KeptStatistics::Recording recording(&outer);
    KeptStatistics::Note(Of(1));
  }
  {
    const KeptStatistics::Recording none_of_it(&around);
    const KeptStatistics::Replay replay(&outer);
    const KeptStatistics::Recording recording(&inner);
    KeptStatistics::Note(Of(Next()));
  }
  const KeptStatistics::Replay replay(&inner);
  EXPECT_EQ(Next(), 1);
  const KeptStatistics::Replay nothing(&around);
  EXPECT_THROW(Next(), c10::Error);
}

}  // namespace
}  // namespace tandem::kept_statistics_test
