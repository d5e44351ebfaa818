// A job's report as TensorBoard's curves.

#include "tools/trainer/report/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensorboard/summary.h"
#include "core/testing/statuses.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/core/testing/test_files.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"

namespace tandem::tensorboard_test {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

Report ReportTo(const std::string& folder) {
  absl::StatusOr<TensorBoardLog> board = TensorBoardLog::Open(folder);
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open("");
  EXPECT_TRUE(board.ok()) << board.status();
  return Report::Speaking(*std::move(metrics), RunPage(), *std::move(board));
}

StepReport ImageStep() {
  StepReport step;
  step.step = 25;
  step.score = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
  step.learning_rate = 0.125;
  step.samples_per_s = 1000;
  step.step_ms = 64;
  step.rss_mib = 512;
  return step;
}

std::map<std::string, float> ScalarsOf(const StepReport& step) {
  const std::string folder = NewTestFolder("board_step");
  Report report = ReportTo(folder);
  ExpectOk(report.Begin(/*goes_on=*/false));
  report.ShowStep(step, 100);
  report.ShowSummary(SummaryReport());
  const std::vector<ReadEvent> events = EventsIn(folder);
  EXPECT_EQ(events.back().step, step.step);
  return events.back().scalars;
}

TEST(TensorBoardLogTest, AStepOfImagesHasTheseCurves) {
  EXPECT_THAT(
      ScalarsOf(ImageStep()),
      UnorderedElementsAre(
          Pair("train/loss", 1.5f), Pair("train/accuracy", 0.25f),
          Pair("train/lr", 0.125f), Pair("train/samples_per_sec", 1000.f),
          Pair("perf/step_ms", 64.f), Pair("memory/rss_mib", 512.f)));
}

TEST(TensorBoardLogTest, AStepOfTextHasAllOfThem) {
  StepReport step = ImageStep();
  step.tokens_per_s = 32000;
  step.gradient_norm = 0.5;
  step.utilization = 0.375;
  step.loss_scale = 65536;
  step.auxiliary_losses = {{"z_loss", 0.0625}};
  step.sums = {{"dropped", 3}};
  step.ranks = {{0, {}, 63}, {1, {8, 0, 4}, 65}};
  EXPECT_THAT(
      ScalarsOf(step),
      UnorderedElementsAre(
          Pair("train/loss", 1.5f), Pair("train/accuracy", 0.25f),
          Pair("train/perplexity", FloatEq(std::exp(1.5f))),
          Pair("train/z_loss", 0.0625f), Pair("train/dropped", 3.f),
          Pair("train/lr", 0.125f), Pair("train/grad_norm", 0.5f),
          Pair("train/loss_scale", 65536.f),
          Pair("train/tokens_per_sec", 32000.f), Pair("train/mfu", 37.5f),
          Pair("perf/step_ms", 64.f), Pair("memory/rss_mib", 512.f),
          Pair("train/loss_rank_1", 2.f), Pair("perf/step_ms_rank_0", 63.f),
          Pair("perf/step_ms_rank_1", 65.f)));
}

TEST(TensorBoardLogTest, ALossThatIsNotFiniteIsAPoint) {
  StepReport step = ImageStep();
  step.score.loss_sum = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ScalarsOf(step)["train/loss"],
            std::numeric_limits<float>::infinity());
}

TEST(TensorBoardLogTest, AnEvaluationIsInTheFileAtOnce) {
  const std::string folder = NewTestFolder("board_evaluation");
  Report report = ReportTo(folder);
  ExpectOk(report.Begin(/*goes_on=*/false));
  EvaluationReport evaluation;
  evaluation.step = 100;
  evaluation.score = {/*loss_sum=*/6, /*correct=*/1, /*count=*/4};
  evaluation.sums = {{"dropped", 3}};
  report.ShowEvaluation(evaluation);
  EXPECT_EQ(EventsIn(folder).back().step, 100);
  EXPECT_THAT(
      EventsIn(folder).back().scalars,
      UnorderedElementsAre(Pair("val/loss", 1.5f), Pair("val/accuracy", 0.25f),
                           Pair("val/dropped", 3.f)));
  evaluation.is_text = true;
  report.ShowEvaluation(evaluation);
  EXPECT_THAT(EventsIn(folder).back().scalars["val/perplexity"],
              FloatEq(std::exp(1.5f)));
}

TEST(TensorBoardLogTest, ASkippedStepHasItsScale) {
  const std::string folder = NewTestFolder("board_skipped");
  Report report = ReportTo(folder);
  ExpectOk(report.Begin(/*goes_on=*/false));
  report.ShowSkippedStep({/*step=*/3, /*loss_scale=*/32768, 1});
  report.ShowSkippedStep({/*step=*/4, /*loss_scale=*/0, 2});
  report.ShowSummary(SummaryReport());
  EXPECT_THAT(ScalarsIn(EventsIn(folder), "train/loss_scale"),
              ElementsAre(Pair(3, 32768.f)));
}

// The settings' step, and the step from which a session starts; -1: none does.
std::pair<int64_t, int64_t> Beginning(const Report::Start& start) {
  const std::string folder = NewTestFolder("board_beginning");
  Report report = ReportTo(folder);
  report.ShowSettings({}, {{"epochs", int64_t{3}}, {"model", "a|b\nc\xff"}});
  report.ShowStart(start);
  // A job that is refused before leaves no file.
  EXPECT_THAT(EventFilesIn(folder), IsEmpty());
  ExpectOk(report.Begin(/*goes_on=*/false));
  std::pair<int64_t, int64_t> found = {-1, -1};
  for (const ReadEvent& each : EventsIn(folder)) {
    if (each.starts_session) found.second = each.step;
    if (each.texts.empty()) continue;
    found.first = each.step;
    EXPECT_EQ(each.texts.at("settings"),
              "| setting | value |\n|---|---|\n| epochs | 3 |\n"
              "| model | a\\|b<br>c\xef\xbf\xbd |\n");
  }
  return found;
}

TEST(TensorBoardLogTest, AJobThatGoesOnDropsWhatItDoesOnceMore) {
  EXPECT_THAT(Beginning({"job", 7, "checkpoint"}), Pair(7, 8));
  EXPECT_THAT(Beginning({"job", 0, "checkpoint"}), Pair(0, 1));
}

TEST(TensorBoardLogTest, ANewJobTakesThePlaceOfAnEarlierOne) {
  EXPECT_THAT(Beginning({"job", 0, ""}), Pair(0, 0));
}

TEST(TensorBoardLogTest, AnEvaluationAloneDropsNothing) {
  EXPECT_THAT(Beginning({"job", 7, "checkpoint", /*trains=*/false}),
              Pair(7, -1));
}

TEST(TensorBoardLogTest, TextsAndOtherValuesMayBeAdded) {
  const std::string folder = NewTestFolder("board_texts");
  Report report = ReportTo(folder);
  // Before it begins, too.
  report.ShowText("samples", "caf\xe9", 2);
  ExpectOk(report.Begin(/*goes_on=*/false));
  Summary values;
  ExpectOk(values.AddScalar("x", 1));
  report.ShowValues(values, 3);
  report.ShowSummary(SummaryReport());
  const std::vector<ReadEvent> events = EventsIn(folder);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].step, 2);
  EXPECT_THAT(events[1].texts, ElementsAre(Pair("samples", "caf\xef\xbf\xbd")));
  EXPECT_EQ(events[2].step, 3);
  EXPECT_THAT(events[2].scalars, ElementsAre(Pair("x", 1.f)));
}

TEST(TensorBoardLogTest, WhatCannotBeWrittenIsToldOnceAndCostsNothingElse) {
  const std::string folder = NewTestFolder("board_refused");
  Report report = ReportTo(folder);
  ExpectOk(report.Begin(/*goes_on=*/false));
  StepReport step = ImageStep();
  step.sums = {{"caf\xe9", 3}};
  testing::internal::CaptureStdout();
  report.ShowStep(step, 100);
  report.ShowText("", "text", 26);
  report.ShowSummary(SummaryReport());
  const std::string said = testing::internal::GetCapturedStdout();
  const size_t first = said.find("warning: ");
  EXPECT_THAT(said.substr(first),
              HasSubstr("tag \"train/caf\\xe9\" is no UTF-8: give it in UTF-8; "
                        "training goes on, and points are missing there"));
  EXPECT_EQ(said.find("warning: ", first + 1), std::string::npos) << said;
  EXPECT_EQ(EventsIn(folder).back().scalars.size(), 6u);
}

TEST(TensorBoardLogTest, AFolderThatIsNoneIsRefused) {
  const std::string folder = NewTestFolder("board_none");
  WriteBytes(folder + "/file", "x");
  EXPECT_THAT(TensorBoardLog::Open(folder + "/file").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "--tensorboard_dir", folder + "/file"));
}

TEST(TensorBoardLogTest, WithoutAFolderNothingIsWritten) {
  Report report = ReportTo("");
  ExpectOk(report.Begin(/*goes_on=*/false));
  report.ShowStep(ImageStep(), 100);
  report.ShowText("samples", "text", 2);
  Report silent = Report::Silent();
  silent.ShowText("samples", "text", 2);
  silent.ShowValues(Summary(), 2);
}

}  // namespace
}  // namespace tandem::tensorboard_test
