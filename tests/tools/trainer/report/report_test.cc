// A job's report, and the file of metrics that it writes.

#include "tools/trainer/report/report.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/statuses.h"
#include "tools/trainer/report/metrics.h"

namespace tandem::report_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A path without a file, and without those of earlier jobs.
std::string NewPath(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder + "/m.jsonl";
}

TEST(MetricsFileTest, WritesOneObjectALineInTheGivenOrder) {
  const std::string path = NewPath("metrics.jsonl");
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"event", "step"}, {"step", 25}}).ok());
  // Flushed at once: a reader can follow.
  EXPECT_EQ(Contents(path), "{\"event\":\"step\",\"step\":25}\n");
  ASSERT_TRUE(metrics->Write({{"event", "eval"}, {"loss", 0.5}}).ok());
  EXPECT_EQ(Contents(path),
            "{\"event\":\"step\",\"step\":25}\n"
            "{\"event\":\"eval\",\"loss\":0.5}\n");
}

TEST(MetricsFileTest, KeepsWhatAnEarlierJobWrote) {
  const std::string path = NewPath("kept.jsonl");
  const auto write = [&](int number, bool is_anothers) {
    absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    const std::string before = Contents(path);
    std::string earlier;
    if (is_anothers) {
      // Until then nothing is moved.
      earlier = metrics->MoveEarlier().value_or("error");
    }
    if (!earlier.empty()) EXPECT_EQ(Contents(earlier), before);
    EXPECT_TRUE(metrics->Write({{"n", number}}).ok());
    return earlier;
  };
  EXPECT_EQ(write(1, true), "");
  EXPECT_EQ(write(2, false), "");
  EXPECT_EQ(write(3, true), path + ".1");
  EXPECT_EQ(write(4, true), path + ".2");
  EXPECT_EQ(Contents(path + ".1"), "{\"n\":1}\n{\"n\":2}\n");
  EXPECT_EQ(Contents(path + ".2"), "{\"n\":3}\n");
  EXPECT_EQ(Contents(path), "{\"n\":4}\n");
}

// A process was killed, or a disk was full.
TEST(MetricsFileTest, GoesOnBehindAHalfLineWithAnotherOne) {
  const std::string path = NewPath("torn.jsonl");
  std::ofstream(path) << "{\"n\":1}\n{\"n";
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"n", 2}}).ok());
  ASSERT_TRUE(metrics->Write({{"n", 3}}).ok());
  EXPECT_EQ(Contents(path), "{\"n\":1}\n{\"n\n{\"n\":2}\n{\"n\":3}\n");
}

TEST(MetricsFileTest, TakesATextThatIsNoUtf8) {
  const std::string path = NewPath("latin1.jsonl");
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_TRUE(metrics->Write({{"save_dir", "caf\xe9"}}).ok());
  EXPECT_THAT(Contents(path), HasSubstr("caf"));
}

TEST(MetricsFileTest, WritesNullForWhatIsNotFinite) {
  const std::string path = NewPath("nan.jsonl");
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"loss", std::nan("")}}).ok());
  EXPECT_EQ(Contents(path), "{\"loss\":null}\n");
}

TEST(MetricsFileTest, WritesToAPipeThatSomebodyReads) {
  const std::string path = NewPath("metrics_pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(MetricsFile::Open(path).status(),
              Says("nobody reads from this pipe"));
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"event", "x"}}).ok());
  char text[32] = {};
  EXPECT_GT(read(reader, text, sizeof(text) - 1), 0);
  EXPECT_STREQ(text, "{\"event\":\"x\"}\n");
  close(reader);
}

TEST(MetricsFileTest, SwallowsEverythingWithoutAPath) {
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open("");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_TRUE(metrics->Write({{"event", "step"}}).ok());
}

TEST(MetricsFileTest, NamesThePathThatCannotBeOpened) {
  absl::StatusOr<MetricsFile> metrics =
      MetricsFile::Open("/nonexistent/metrics.jsonl");
  EXPECT_THAT(metrics.status(),
              Says("--metrics_file=/nonexistent/metrics.jsonl"));
}

TEST(MetricsFileTest, ReportsAFullDisk) {
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open("/dev/full");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  const absl::Status full = metrics->Write({{"event", "step"}});
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                             "No space left on device"));
}

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
  summary.evaluation.score = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
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
