// Training report: lines for a person on stdout, progress on stderr, one JSON
// object an event in the metrics file, and curves for TensorBoard.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_
#define TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/tensorboard/summary.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/report/tensorboard.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// Shows how far a long job has come: on a terminal, a bar that is redrawn at
// most ten times a second; elsewhere one plain line every few seconds, as a log
// wants it. Not thread-safe.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `what` names the unit of work: "epoch 1/3". `out` outlives this.
  Progress(std::string what, int64_t total, std::FILE* out, bool terminal);
  // Takes the bar off the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total` are done; `note` is shown behind the bar.
  void Update(int64_t done, const std::string& note, Clock::time_point now);

  // Takes the bar away, so that a line can be printed; the next Update draws
  // it again.
  void Clear();

 private:
  std::string what_;
  int64_t total_;
  std::FILE* out_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point next_;
};

// The bar itself: "epoch 1/1 [=====>    ]  52% 488/938 loss 0.41".
std::string ProgressBar(const std::string& what, int64_t done, int64_t total,
                        const std::string& note);

// Speaks for the job on rank 0, and is silent on the others. Not thread-safe.
class Report {
 public:
  static Report Silent();
  // Events wait for Begin: a job that is refused before writes none.
  static Report Speaking(MetricsFile metrics, TensorBoardLog board = {});

  // Nothing more can refuse the job: from here on events are written, and those
  // from before first. Unless it `goes_on`, what the metrics file holds is
  // another job's, and is moved away: a line says where.
  absl::Status Begin(bool goes_on);

  // `shown` to a person, `all` to the metrics file and TensorBoard.
  void ShowSettings(const SettingValues& shown, const SettingValues& all);
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
  void ShowSummary(const SummaryReport& summary);

  // To TensorBoard alone: a text in Markdown, after so many steps of the job
  // (bytes that are no UTF-8 become U+FFFD); or any values, images and
  // histograms, say.
  void ShowText(absl::string_view tag, absl::string_view markdown,
                int64_t step);
  void ShowValues(const Summary& values, int64_t step);

 private:
  Report(std::unique_ptr<MetricsFile> metrics, TensorBoardLog board)
      : metrics_(std::move(metrics)), board_(std::move(board)) {}

  bool silent() const { return metrics_ == nullptr; }
  // Every event has its time.
  void ShowEvent(const char* name, const nlohmann::ordered_json& fields);
  // A file that cannot be written costs no training: a line says so, once.
  void WriteEvent(const nlohmann::ordered_json& event);
  // The same of what TensorBoard was told.
  void NoteBoard(const absl::Status& told);

  std::unique_ptr<MetricsFile> metrics_;  // null: silent
  TensorBoardLog board_;
  bool has_begun_ = false;
  std::vector<nlohmann::ordered_json> waiting_;  // events, until then
  std::unique_ptr<Progress> progress_;
  bool misses_events_ = false;
  bool misses_points_ = false;
  bool is_unheard_ = false;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_
