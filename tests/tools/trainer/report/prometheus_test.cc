// The file for Prometheus, read as strictly as Prometheus' own parser does.

#include "tools/trainer/report/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/program/version.h"
#include "core/testing/statuses.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/report.h"

namespace tandem::prometheus_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

struct Metric {
  std::string type;
  std::map<std::string, std::string> labels;
  double value = 0;
};

std::string Unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      plain += text[i];
      continue;
    }
    ++i;
    EXPECT_TRUE(text[i] == '\\' || text[i] == '"' || text[i] == 'n') << text;
    plain += text[i] == 'n' ? '\n' : text[i];
  }
  return plain;
}

// By name. What promtool check metrics finds fault with is a failure: a metric
// without its help and type before it, a name that is not of the grammar or not
// in base units, a counter that does not end in _total, what comes twice, a
// last line without its end.
std::map<std::string, Metric> Parsed(const std::string& text) {
  static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ([^\\n]+)");
  static const std::regex type(
      "# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) "
      "(counter|gauge)");
  static const std::regex sample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{([^\\n]*)\\})? ([^ \\n]+)");
  static const std::regex label(
      "([a-zA-Z_][a-zA-Z0-9_]*)=\"(([^\"\\\\]|\\\\[\\\\\"n])*)\"(,|$)");
  std::map<std::string, Metric> metrics;
  EXPECT_TRUE(text.empty() || text.back() == '\n') << text;
  std::istringstream lines(text);
  std::string helped;
  std::string typed;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      helped = match[1];
    } else if (std::regex_match(line, match, type)) {
      EXPECT_EQ(match[1], helped) << line;
      typed = match[1];
      EXPECT_TRUE(metrics.try_emplace(typed).second) << "twice: " << line;
      metrics[typed].type = match[2];
    } else if (std::regex_match(line, match, sample)) {
      EXPECT_EQ(match[1], typed) << line;
      Metric& metric = metrics[match[1]];
      typed = "";  // it has one sample
      std::string labels = match[3];
      for (std::smatch each; !labels.empty(); labels = each.suffix()) {
        if (!std::regex_search(labels, each, label,
                               std::regex_constants::match_continuous)) {
          ADD_FAILURE() << "not labels: " << labels;
          break;
        }
        EXPECT_TRUE(metric.labels.emplace(each[1], Unescaped(each[2])).second);
      }
      const std::string value = match[4];
      char* end = nullptr;
      metric.value = std::strtod(value.c_str(), &end);
      EXPECT_EQ(*end, '\0') << line;
      const bool is_counter = metric.type == "counter";
      EXPECT_EQ(std::regex_match(helped, std::regex(".*_total")), is_counter)
          << line;
      EXPECT_FALSE(is_counter && !(metric.value >= 0)) << line;
      EXPECT_FALSE(std::regex_search(
          helped, std::regex("_(ms|mib|percent|minutes|milliseconds)(_|$)")))
          << line;
    } else {
      ADD_FAILURE() << "not of the format: " << line;
    }
  }
  return metrics;
}

std::set<std::string> NamesOf(const std::map<std::string, Metric>& metrics) {
  std::set<std::string> names;
  for (const auto& each : metrics) names.insert(each.first);
  return names;
}

StepReport Step() {
  StepReport step;
  step.epoch = 2;
  step.step = 250;
  step.samples = 32000;
  step.score.loss_sum = 12.5;
  step.score.count = 50;
  step.learning_rate = 0.1;
  step.samples_per_s = 512;
  step.step_ms = 250;
  step.rss_mib = 1.5;
  return step;
}

EvaluationReport Evaluation() {
  EvaluationReport evaluation;
  evaluation.score.loss_sum = 3;
  evaluation.score.count = 8;
  evaluation.score.correct = 6;
  return evaluation;
}

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

TEST(FormatPrometheusTest, AJobThatHasNotBegunHasItsNameAlone) {
  PrometheusValues values;
  values.model = "gpt2";
  values.world_size = 8;
  const auto metrics = Parsed(FormatPrometheus(values));
  EXPECT_THAT(
      NamesOf(metrics),
      ElementsAre("tandem_info", "tandem_training_skipped_steps_total"));
  const Metric& info = metrics.at("tandem_info");
  EXPECT_EQ(info.value, 1);
  EXPECT_EQ(
      info.labels,
      (std::map<std::string, std::string>{
          {"version", kVersion}, {"model", "gpt2"}, {"world_size", "8"}}));
}

TEST(FormatPrometheusTest, ValuesAreInBaseUnits) {
  PrometheusValues values;
  values.step = Step();
  values.step_time = 1.7e9;
  values.skipped_steps = 3;
  values.evaluation = Evaluation();
  auto metrics = Parsed(FormatPrometheus(values));
  const std::map<std::string, std::pair<std::string, double>> expected = {
      {"tandem_info", {"gauge", 1}},
      {"tandem_training_steps_total", {"counter", 250}},
      {"tandem_training_samples_total", {"counter", 32000}},
      {"tandem_training_skipped_steps_total", {"counter", 3}},
      {"tandem_training_loss", {"gauge", 0.25}},
      {"tandem_training_learning_rate", {"gauge", 0.1}},
      {"tandem_training_step_duration_seconds", {"gauge", 0.25}},
      {"tandem_training_samples_per_second", {"gauge", 512}},
      {"tandem_process_resident_memory_bytes", {"gauge", 1572864}},
      {"tandem_training_last_step_timestamp_seconds", {"gauge", 1.7e9}},
      {"tandem_evaluation_loss", {"gauge", 0.375}},
      {"tandem_evaluation_accuracy_ratio", {"gauge", 0.75}},
  };
  ASSERT_THAT(metrics, SizeIs(expected.size()));
  for (const auto& [name, what] : expected) {
    EXPECT_EQ(metrics[name].type, what.first) << name;
    EXPECT_EQ(metrics[name].value, what.second) << name;
    // No series but one of each.
    if (name != "tandem_info") EXPECT_THAT(metrics[name].labels, SizeIs(0));
  }
}

TEST(FormatPrometheusTest, WhatATextsStepHasBesideIsThere) {
  PrometheusValues values;
  values.step = Step();
  values.step->tokens = int64_t{1} << 53;
  values.step->tokens_per_s = 1e6;
  values.step->gradient_norm = 0.5;
  values.step->utilization = 0.42;
  auto metrics = Parsed(FormatPrometheus(values));
  EXPECT_EQ(metrics["tandem_training_tokens_total"].value, 9007199254740992);
  EXPECT_EQ(metrics["tandem_training_tokens_per_second"].value, 1e6);
  EXPECT_EQ(metrics["tandem_training_gradient_norm"].value, 0.5);
  EXPECT_EQ(metrics["tandem_training_mfu_ratio"].value, 0.42);
}

TEST(FormatPrometheusTest, NumbersThatAreNotFiniteHaveTheirWords) {
  PrometheusValues values;
  values.step = Step();
  values.step->score.loss_sum = std::nan("");
  values.step->gradient_norm = std::numeric_limits<double>::infinity();
  const std::string text = FormatPrometheus(values);
  EXPECT_THAT(text, HasSubstr("\ntandem_training_loss NaN\n"));
  EXPECT_THAT(text, HasSubstr("\ntandem_training_gradient_norm +Inf\n"));
  EXPECT_TRUE(std::isnan(Parsed(text)["tandem_training_loss"].value));
}

TEST(FormatPrometheusTest, LabelsAreEscaped) {
  PrometheusValues values;
  values.model = "a\"b\\c\nd{},e=\"f\"";
  EXPECT_EQ(Parsed(FormatPrometheus(values))["tandem_info"].labels["model"],
            values.model);
  EXPECT_EQ(EscapeLabelValue("\\\n\""), "\\\\\\n\\\"");
}

TEST(PrometheusFileTest, IsWrittenAtMostOnceInAnInterval) {
  const std::string path = NewFolder("interval") + "/job.prom";
  auto file = PrometheusFile::Open(path, {"cnn", 2});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(std::filesystem::exists(path));
  const PrometheusFile::Clock::time_point start(std::chrono::hours(1));
  const auto steps_at = [&](std::chrono::milliseconds after) {
    ExpectOk((*file)->WriteIfDue(start + after));
    return Parsed(Contents(path))["tandem_training_steps_total"].value;
  };
  StepReport step = Step();
  const auto note = [&](int64_t number) {
    step.step = number;
    (*file)->Note(step);
  };
  note(1);
  EXPECT_EQ(steps_at(std::chrono::seconds(0)), 1);
  note(2);
  EXPECT_EQ(steps_at(std::chrono::milliseconds(14999)), 1);
  EXPECT_EQ(steps_at(std::chrono::seconds(15)), 2);
  note(3);
  EXPECT_EQ(steps_at(std::chrono::seconds(16)), 2);
  ExpectOk((*file)->Write());
  EXPECT_EQ(steps_at(std::chrono::seconds(16)), 3);
  // A job that ends by an error says no summary.
  note(4);
  file->reset();
  EXPECT_EQ(Parsed(Contents(path))["tandem_training_steps_total"].value, 4);
  // Nothing stays beside it.
  int files = 0;
  for (const auto& each : std::filesystem::directory_iterator(
           std::filesystem::path(path).parent_path())) {
    static_cast<void>(each);
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(PrometheusFileTest, NamesThePathThatCannotBeWritten) {
  for (const char* path : {"/nonexistent/job.prom", "/dev/null"}) {
    const auto file = PrometheusFile::Open(path, {"cnn", 1});
    EXPECT_THAT(file.status(), Says("--prometheus_file: ")) << path;
    EXPECT_THAT(file.status(), Says(path));
  }
}

// A line says so, and training goes on: it is the same with --metrics_file.
TEST(PrometheusFileTest, OneThatCannotBeWrittenAnyMoreIsToldOfOnce) {
  const std::string folder = NewFolder("gone");
  auto file = PrometheusFile::Open(folder + "/job.prom", {"cnn", 1});
  ASSERT_TRUE(file.ok()) << file.status();
  auto metrics = MetricsFile::Open("");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  Report report = Report::Speaking(*std::move(metrics));
  report.KeepPrometheus(*std::move(file));
  std::filesystem::remove_all(folder);
  testing::internal::CaptureStdout();
  ExpectOk(report.Begin(/*goes_on=*/false));
  report.ShowStep(Step(), 250);
  report.ShowEvaluation(Evaluation());
  report.ShowSummary(SummaryReport());
  const std::string said = testing::internal::GetCapturedStdout();
  const size_t first = said.find("warning: --prometheus_file: ");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("warning: ", first + 1), std::string::npos) << said;
  EXPECT_THAT(said, HasSubstr("training goes on"));
  EXPECT_THAT(said, HasSubstr("summary"));
}

TEST(PrometheusFileTest, AReportKeepsItUpToDate) {
  const std::string path = NewFolder("report") + "/job.prom";
  auto file = PrometheusFile::Open(path, {"cnn", 1});
  ASSERT_TRUE(file.ok()) << file.status();
  auto metrics = MetricsFile::Open("");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  Report report = Report::Speaking(*std::move(metrics));
  report.KeepPrometheus(*std::move(file));
  testing::internal::CaptureStdout();
  EXPECT_FALSE(std::filesystem::exists(path)) << "it may be refused yet";
  ExpectOk(report.Begin(/*goes_on=*/false));
  EXPECT_THAT(NamesOf(Parsed(Contents(path))),
              Not(testing::Contains("tandem_training_steps_total")));
  report.ShowStep(Step(), 250);
  report.ShowSkippedStep({251, 0, 7});
  report.ShowEvaluation(Evaluation());
  report.ShowSummary(SummaryReport());
  testing::internal::GetCapturedStdout();
  auto shown = Parsed(Contents(path));
  EXPECT_EQ(shown["tandem_training_steps_total"].value, 250);
  EXPECT_EQ(shown["tandem_training_skipped_steps_total"].value, 7);
  EXPECT_EQ(shown["tandem_evaluation_accuracy_ratio"].value, 0.75);
}

}  // namespace
}  // namespace tandem::prometheus_test
