// Metrics and curves on a disk that is full: a program of its own, as the limit
// on files is the process's.

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/core/testing/file_limit.h"
#include "tests/core/testing/test_files.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/report/tensorboard.h"

namespace tandem {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TornMetricsTest, AnEventIsThereWholeOrNotAtAll) {
  const std::string path = testing::TempDir() + "/torn_metrics.jsonl";
  std::remove(path.c_str());
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"n", 1}}).ok());
  const std::string first = Contents(path);
  absl::Status full;
  {
    const FileLimit limit(first.size() + 3);
    full = metrics->Write({{"n", 2}});
  }
  EXPECT_THAT(full, Says(path + ": cannot write: File too large"));
  EXPECT_EQ(Contents(path), first);
  ASSERT_TRUE(metrics->Write({{"n", 3}}).ok());
  EXPECT_EQ(Contents(path), "{\"n\":1}\n{\"n\":3}\n");
}

// The same of what TensorBoard is told, which waits for room.
TEST(TornMetricsTest, AFullDiskCostsTheCurvesAndNotTheTraining) {
  const std::string folder = NewTestFolder("torn_board");
  auto metrics = MetricsFile::Open("");
  auto board = TensorBoardLog::Open(folder);
  ASSERT_TRUE(metrics.ok() && board.ok());
  Report report =
      Report::Speaking(*std::move(metrics), RunPage(), *std::move(board));
  testing::internal::CaptureStdout();
  {
    // What is said finds room, and the settings do not.
    const FileLimit limit(4096);
    report.ShowSettings({}, {{"model", std::string(5000, 'x')}});
    ExpectOk(report.Begin(/*goes_on=*/false));
    for (int i = 0; i < 2; ++i) report.ShowEvaluation(EvaluationReport());
    EXPECT_EQ(EventsIn(folder).size(), 1u);
  }
  const std::string said = testing::internal::GetCapturedStdout();
  const size_t first = said.find("warning: ");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_THAT(said.substr(first),
              testing::AllOf(
                  testing::HasSubstr(folder + "/events.out.tfevents."),
                  testing::HasSubstr(": cannot write: File too large; training "
                                     "goes on, and points are missing")));
  EXPECT_EQ(said.find("warning: ", first + 1), std::string::npos) << said;
  report.ShowSummary(SummaryReport());
  EXPECT_EQ(EventsIn(folder).size(), 4u);
}

}  // namespace
}  // namespace tandem
