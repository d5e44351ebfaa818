// From the lines of a metrics file to a run's curves.

#include "tools/report/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/statuses.h"

namespace tandem::run_log_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;

std::string StepLine(int step, double loss, double time = 0) {
  return absl::StrCat(R"({"event":"step","time":)", time, R"(,"step":)", step,
                      R"(,"loss":)", loss, "}");
}

RunLog LogOf(const std::vector<std::string>& lines) {
  RunLogReader reader;
  for (const std::string& line : lines) reader.Add(line);
  return reader.log();
}

std::vector<SeriesPoint> PointsOf(const ThinnedSeries* series) {
  std::vector<SeriesPoint> points;
  if (series == nullptr) return points;
  for (const SeriesBucket& bucket : series->buckets()) {
    points.push_back({bucket.last_x, bucket.mean});
  }
  return points;
}

TEST(RunLogTest, HasCurvesOfNumbersAndTheLastOfWhatElseThereIs) {
  const RunLog log = LogOf(
      {R"({"event":"settings","time":100,"model":"cnn","seed":1})",
       R"({"event":"environment","time":100,"cores":2})",
       R"({"event":"start","time":100,"job":"j","step":0})",
       R"({"event":"step","time":101,"step":5,"epoch":1,"loss":2,"sums":{"t":9}})",
       R"({"event":"skipped_step","time":101.5,"step":6,"skipped_steps":1})",
       R"({"event":"step","time":102,"step":10,"epoch":1,"loss":null})",
       R"({"event":"eval","time":103,"epoch":1,"loss":1.5,"count":7})",
       R"({"event":"eval","time":104,"epoch":2,"step":9,"loss":1})",
       R"({"event":"of_a_later_version","time":104})",
       R"({"event":"summary","time":105,"test_loss":1})"});
  EXPECT_EQ(TextField(log.settings, "model"), "cnn");
  EXPECT_EQ(CountField(log.environment, "cores"), 2);
  EXPECT_THAT(PointsOf(log.Curve("loss")),
              ElementsAre(SeriesPoint{5, 2}, SeriesPoint{10, 0}));
  EXPECT_EQ(log.Curve("loss")->gaps(), 1);
  EXPECT_THAT(PointsOf(log.Curve("sums/t")), ElementsAre(SeriesPoint{5, 9}));
  EXPECT_EQ(log.Curve("epoch"), nullptr);
  // Where an evaluation says no step, the last one; one that goes back has
  // taken back what was behind.
  EXPECT_THAT(PointsOf(log.EvaluationCurve("loss")),
              ElementsAre(SeriesPoint{9, 1}));
  EXPECT_EQ(log.last_step, 10);
  EXPECT_EQ(log.skipped_steps, 1);
  EXPECT_EQ(log.seconds, 5);
  EXPECT_EQ(log.ended, 105);
  EXPECT_EQ(log.events, 10);
  EXPECT_EQ(log.unread_lines, 0);
  EXPECT_EQ(NumberField(log.summary, "test_loss"), 1);
}

TEST(RunLogTest, AJobThatGoesOnTakesBackWhatLayBehind) {
  const RunLog log =
      LogOf({R"({"event":"settings","time":10,"seed":1})",
             R"({"event":"start","time":10,"step":0})", StepLine(1, 9, 11),
             StepLine(2, 8, 12), StepLine(3, 7, 13),
             R"({"event":"eval","time":14,"step":3,"loss":5})",
             R"({"event":"settings","time":100,"seed":2})",
             R"({"event":"start","time":100,"step":2})", StepLine(3, 6, 101),
             StepLine(4, 5, 102)});
  EXPECT_THAT(PointsOf(log.Curve("loss")),
              ElementsAre(SeriesPoint{1, 9}, SeriesPoint{2, 8},
                          SeriesPoint{3, 6}, SeriesPoint{4, 5}));
  EXPECT_EQ(log.EvaluationCurve("loss"), nullptr);
  EXPECT_EQ(log.resumes, 1);
  EXPECT_EQ(log.dropped_from, 2);
  // It was not at work between its processes.
  EXPECT_EQ(log.seconds, 4 + 2);
  EXPECT_EQ(CountField(log.settings, "seed"), 2);
}

TEST(RunLogTest, StepsThatBeginAnewWithoutAWordTakeBackToo) {
  const RunLog log = LogOf({StepLine(10, 3), StepLine(20, 2), StepLine(30, 1),
                            StepLine(20, 7), StepLine(30, 6)});
  EXPECT_THAT(
      PointsOf(log.Curve("loss")),
      ElementsAre(SeriesPoint{10, 3}, SeriesPoint{20, 7}, SeriesPoint{30, 6}));
}

TEST(RunLogTest, GoesOnAtItsLastStepWithoutALoss) {
  const RunLog log = LogOf({StepLine(5, 2), R"({"event":"summary","loss":2})",
                            R"({"event":"start","step":5})", StepLine(6, 1)});
  EXPECT_EQ(PointsOf(log.Curve("loss")).size(), 2u);
  EXPECT_EQ(log.dropped_from, 0);
  EXPECT_EQ(log.resumes, 1);
  // The summary was an earlier process's.
  EXPECT_TRUE(log.summary.empty());
}

TEST(RunLogTest, LinesThatAreNoEventsAreCounted) {
  const RunLog log = LogOf({"", "  \r", StepLine(1, 2), "{half", "[1]",
                            std::string((1 << 20) + 1, ' ') + StepLine(2, 2),
                            std::string("\0\xff<script>", 10),
                            R"({"event":"step","step":-1,"loss":1})",
                            R"({"event":"step","step":1e300,"loss":1})",
                            R"({"event":"step","step":"2","loss":1})",
                            R"({"event":"start","step":{},"time":"now"})"});
  EXPECT_EQ(log.unread_lines, 4);
  EXPECT_EQ(log.first_unread, 4);
  EXPECT_EQ(PointsOf(log.Curve("loss")).size(), 0u);  // the start took it back
  EXPECT_EQ(log.events, 5);
}

TEST(RunLogTest, TakesSoManyCurvesAndNoMore) {
  std::string line = R"({"event":"step","step":1)";
  for (int i = 0; i < 500; ++i) absl::StrAppend(&line, ",\"f", i, "\":1");
  EXPECT_EQ(LogOf({line + "}"}).steps.size(), RunLog::kMostCurves);
}

std::string FileOf(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ReadRunLogTest, ALastLineWithoutAnEndIsReadOrTorn) {
  const std::string whole = StepLine(1, 2) + "\n" + StepLine(2, 1);
  const auto log = ReadRunLog(FileOf("whole.jsonl", whole));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last_step, 2);
  EXPECT_FALSE(log->is_torn);
  const auto torn = ReadRunLog(FileOf("cut_off.jsonl", whole.substr(0, 60)));
  ASSERT_TRUE(torn.ok()) << torn.status();
  EXPECT_EQ(torn->last_step, 1);
  EXPECT_TRUE(torn->is_torn);
  EXPECT_EQ(torn->unread_lines, 1);
}

// Lines cross the pieces in which a file is read.
TEST(ReadRunLogTest, ReadsLongLinesAndManyOfThem) {
  std::string text;
  for (int i = 1; i <= 5000; ++i) {
    absl::StrAppend(&text, R"({"event":"step","pad":")",
                    std::string(static_cast<size_t>(i % 997), 'x'),
                    R"(","step":)", i, R"(,"loss":1})", "\n");
  }
  text += std::string(3 << 20, 'y') + "\n" + StepLine(5001, 4) + "\n";
  const auto log = ReadRunLog(FileOf("long.jsonl", text));
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last_step, 5001);
  EXPECT_EQ(log->unread_lines, 1);
  EXPECT_EQ(log->first_unread, 5001);
}

TEST(ReadRunLogTest, SaysWhatIsNoMetricsFile) {
  EXPECT_THAT(ReadRunLog("/nonexistent/m.jsonl").status(),
              StatusIs(absl::StatusCode::kNotFound, "/nonexistent/m.jsonl"));
  EXPECT_THAT(ReadRunLog(testing::TempDir()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::TempDir()));
  EXPECT_THAT(ReadRunLog(FileOf("empty.jsonl", "")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "it is empty"));
  EXPECT_THAT(ReadRunLog(FileOf("noise.bin",
                                "\x7f"
                                "ELF\n\n\xff"))
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no line is one"));
}

}  // namespace
}  // namespace tandem::run_log_test
