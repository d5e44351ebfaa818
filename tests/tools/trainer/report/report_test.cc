#include "tools/trainer/report/report.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::report_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Json = nlohmann::json;

std::vector<Json> EventsIn(const std::string& path) {
  std::vector<Json> events;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    events.push_back(Json::parse(line));
  }
  return events;
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  for (const Json& event : EventsIn(path)) names.push_back(event["event"]);
  return names;
}

// A path without a file, and without those of earlier jobs.
std::string NewPath(const std::string& name) {
  const std::string folder = testing::TempDir() + "/report_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder + "/m.jsonl";
}

Report ReportTo(const std::string& path) {
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  return Report::Speaking(*std::move(metrics));
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ReportTest, AFileThatCannotBeWrittenIsToldOfOnceAndEndsNothing) {
  Report report = ReportTo("/dev/full");
  ASSERT_TRUE(report.Begin(/*goes_on=*/false).ok());
  testing::internal::CaptureStdout();
  report.ShowStart({"job", 0, ""});
  report.ShowEvaluation(EvaluationReport());
  report.ShowSummary(SummaryReport());
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(CountOf(said,
                    "warning: --metrics_file=/dev/full: cannot write: "
                    "No space left on device; training goes on, and "
                    "events are missing there"),
            1)
      << said;
  EXPECT_EQ(CountOf(said, "warning: "), 1) << said;
  EXPECT_THAT(said, HasSubstr("summary"));
}

TEST(ReportTest, AJobThatIsRefusedBeforeItBeginsLeavesTheFileAsItIs) {
  const std::string path = NewPath("refused");
  std::ofstream(path) << "{\"event\":\"anothers\"}\n";
  for (const bool begins : {false, true}) {
    Report report = ReportTo(path);
    report.ShowStart({"job", 0, ""});
    EXPECT_THAT(NamesIn(path), ElementsAre("anothers"));
    EXPECT_FALSE(std::filesystem::exists(path + ".1"));
    if (begins) {
      ASSERT_TRUE(report.Begin(/*goes_on=*/false).ok());
      report.ShowEvaluation(EvaluationReport());
    }
  }
  EXPECT_THAT(NamesIn(path), ElementsAre("start", "eval"));
  EXPECT_THAT(NamesIn(path + ".1"), ElementsAre("anothers"));
}

TEST(ReportTest, AJobThatGoesOnWritesBehindWhatIsThere) {
  const std::string path = NewPath("goes_on");
  std::ofstream(path) << "{\"event\":\"before\"}\n";
  Report report = ReportTo(path);
  report.ShowStart({"job", 7, ""});
  ASSERT_TRUE(report.Begin(/*goes_on=*/true).ok());
  EXPECT_THAT(NamesIn(path), ElementsAre("before", "start"));
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

TEST(ReportTest, TheSummaryHasTheTestSetsLoss) {
  const std::string path = NewPath("summary");
  Report report = ReportTo(path);
  ASSERT_TRUE(report.Begin(/*goes_on=*/false).ok());
  SummaryReport summary;
  report.ShowSummary(summary);
  summary.test = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
  testing::internal::CaptureStdout();
  report.ShowSummary(summary);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("  test accuracy      25.00 %, loss 1.5000\n"));
  const std::vector<Json> events = EventsIn(path);
  ASSERT_EQ(events.size(), 2u);
  // Where nothing was evaluated it has none.
  EXPECT_EQ(events[0].count("test_loss") + events[0].count("test_accuracy"),
            0u);
  EXPECT_EQ(events[1]["test_loss"], 1.5);
  EXPECT_EQ(events[1]["test_accuracy"], 0.25);
}

TEST(ReportTest, AnEvaluationOfTextHasItsPerplexity) {
  const std::string path = NewPath("perplexity");
  Report report = ReportTo(path);
  ASSERT_TRUE(report.Begin(/*goes_on=*/false).ok());
  EvaluationReport evaluation;
  evaluation.score = {/*loss_sum=*/0, /*correct=*/1, /*count=*/4};
  report.ShowEvaluation(evaluation);
  evaluation.is_text = true;
  report.ShowEvaluation(evaluation);
  const std::vector<Json> events = EventsIn(path);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].count("perplexity"), 0u);
  EXPECT_EQ(events[1]["perplexity"], 1.0);
}

}  // namespace
}  // namespace tandem::report_test
