// The page of the job that is under way.

#include "tools/trainer/report/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/testing/statuses.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"

namespace tandem::run_page_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string NewFolder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

Report ReportWith(const std::string& metrics_file, const std::string& path) {
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(metrics_file);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  absl::StatusOr<RunPage> page = RunPage::Open(path);
  EXPECT_TRUE(page.ok()) << page.status();
  return Report::Speaking(*std::move(metrics), *std::move(page));
}

StepReport Step(int64_t step) {
  StepReport report;
  report.step = step;
  report.score = {/*loss_sum=*/2.5, /*correct=*/1, /*count=*/1};
  return report;
}

TEST(RunPageTest, TriesThePathAndLeavesNothing) {
  const std::string folder = NewFolder("page_tried");
  EXPECT_TRUE(RunPage::Open(folder + "/page.html").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_THAT(RunPage::Open(folder).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "--report"));
  EXPECT_THAT(RunPage::Open("/nonexistent/page.html").status(),
              StatusIs(absl::StatusCode::kNotFound, "/nonexistent/page.html"));
}

TEST(RunPageTest, KeepsNothingWithoutAPath) {
  absl::StatusOr<RunPage> page = RunPage::Open("");
  ASSERT_TRUE(page.ok()) << page.status();
  page->Note({{"event", "step"}});
  page->NoteEarlier("/nonexistent");
  EXPECT_TRUE(page->Write().ok());
}

TEST(RunPageTest, IsWrittenHoweverTheJobEnds) {
  for (const absl::Status& ended :
       {absl::OkStatus(), absl::CancelledError("stopped"),
        absl::OutOfRangeError("diverged")}) {
    const std::string path = NewFolder("page_written") + "/page.html";
    Report report = ReportWith("", path);
    EXPECT_EQ(report.WritePage(ended), ended);
    // The job has not begun.
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(report.Begin(/*goes_on=*/false).ok());
    report.ShowStep(Step(7), 10);
    EXPECT_EQ(report.WritePage(ended), ended);
    EXPECT_THAT(Contents(path),
                AllOf(HasSubstr("<dt>training loss</dt><dd>2.5</dd>"),
                      HasSubstr("<dt>steps</dt><dd>7</dd>")));
  }
}

TEST(RunPageTest, AFullDiskIsTheErrorOfAJobThatEndedWell) {
  Report report = ReportWith("", "/dev/full");
  ASSERT_TRUE(report.Begin(/*goes_on=*/false).ok());
  EXPECT_THAT(report.WritePage(absl::OkStatus()), Says("--report"));
  testing::internal::CaptureStdout();
  EXPECT_THAT(report.WritePage(absl::CancelledError("stopped")),
              Says("stopped"));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("warning: --report"));
}

TEST(RunPageTest, HasWhatTheMetricsFileHasOfAJobThatGoesOn) {
  const std::string folder = NewFolder("page_goes_on");
  for (const bool goes_on : {true, false}) {
    std::ofstream(folder + "/m.jsonl")
        << R"({"event":"step","step":3,"loss":9,"gradient_norm":4})"
           "\n";
    Report report = ReportWith(folder + "/m.jsonl", folder + "/page.html");
    ASSERT_TRUE(report.Begin(goes_on).ok());
    report.ShowStep(Step(7), 10);
    ASSERT_TRUE(report.WritePage(absl::OkStatus()).ok());
    EXPECT_EQ(Contents(folder + "/page.html").find("Gradient norm") !=
                  std::string::npos,
              goes_on);
  }
}

}  // namespace
}  // namespace tandem::run_page_test
