// Training report: lines for a person on stdout, progress on stderr, one JSON
// object an event in the metrics file, and curves for TensorBoard.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_
#define TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/program/progress.h"
#include "core/tensorboard/summary.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/prometheus.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/report/run_page.h"
#include "tools/trainer/report/tensorboard.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// Speaks for the job on rank 0, and is silent on the others. Not thread-safe.
class Report {
 public:
  static Report Silent();
  // Events wait for Begin: a job that is refused before writes none.
  // `page` shows them, once the job has ended; and those that `metrics` has of
  // a job that goes on.
  static Report Speaking(MetricsFile metrics, RunPage page = {},
                         TensorBoardLog board = {});

  // Keeps this file up to date, too: from Begin on, at most once in 15 s, and
  // when the job has ended. For one that speaks.
  void KeepPrometheus(std::unique_ptr<PrometheusFile> file) {
    prometheus_ = std::move(file);
  }

  // Nothing more can refuse the job: from here on events are written, and those
  // from before first. Unless it `goes_on`, what the metrics file holds is
  // another job's, and is moved away: a line says where.
  absl::Status Begin(bool goes_on);

  // `shown` to a person, `all` to the metrics file and TensorBoard.
  void ShowSettings(const SettingValues& shown, const SettingValues& all);
  // What the job runs on: to the metrics file alone.
  void ShowEnvironment(const SettingValues& environment);
  struct Start {
    std::string job;         // which one it is (Job::id)
    int64_t step = 0;        // done before
    std::string checkpoint;  // that it goes on from; empty: it begins anew
    bool trains = true;      // else it evaluates what is there
  };
  // To the metrics file; and TensorBoard drops points of steps that are done
  // once more.
  void ShowStart(const Start& start);
  // Lines of text that are no event. Where stdout cannot be written (train |
  // head), stderr has a line about it, once.
  void Say(const std::string& line);

  // Starts a progress bar, which the next StartProgress or EndProgress removes.
  void StartProgress(const std::string& what, int64_t total);
  void ShowProgress(int64_t done, const std::string& note);
  void EndProgress();

  void ShowStep(const StepReport& step, int64_t steps_in_all);
  void ShowSkippedStep(const SkippedStepReport& skipped);
  void ShowEvaluation(const EvaluationReport& evaluation);
  void ShowSample(const SampleReport& sample);
  void ShowSummary(const SummaryReport& summary);

  // To TensorBoard alone: a text in Markdown, after so many steps of the job
  // (bytes that are no UTF-8 become U+FFFD); or any values, images and
  // histograms, say.
  void ShowText(absl::string_view tag, absl::string_view markdown,
                int64_t step);
  void ShowValues(const Summary& values, int64_t step);

  // Writes the page of the job that has ended, well or not; a line says where
  // it is. Nothing for one that did not begin. Where it cannot be written that
  // is the error of a job that ended well, and else a line.
  absl::Status WritePage(const absl::Status& ended);

 private:
  Report() = default;  // silent
  Report(MetricsFile metrics, RunPage page, TensorBoardLog board)
      : metrics_(std::make_unique<MetricsFile>(std::move(metrics))),
        page_(std::make_unique<RunPage>(std::move(page))),
        board_(std::move(board)) {}

  bool silent() const { return metrics_ == nullptr; }
  // Every event has its time.
  void ShowEvent(const char* name, const nlohmann::ordered_json& fields);
  // A file that cannot be written costs no training: a line says so, once.
  void WriteEvent(const nlohmann::ordered_json& event);
  // The same of what TensorBoard was told.
  void NoteBoard(const absl::Status& told);

  // The same of the file for Prometheus.
  void TellPrometheus(
      absl::Status (PrometheusFile::*write)(PrometheusFile::Clock::time_point));

  std::unique_ptr<MetricsFile> metrics_;        // null: silent
  std::unique_ptr<RunPage> page_;               // null: silent
  std::unique_ptr<PrometheusFile> prometheus_;  // null: nobody asked for it
  TensorBoardLog board_;
  bool has_begun_ = false;
  std::vector<nlohmann::ordered_json> waiting_;  // events, until then
  std::unique_ptr<Progress> progress_;
  bool misses_events_ = false;
  bool misses_prometheus_ = false;
  bool misses_points_ = false;
  bool is_unheard_ = false;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_
