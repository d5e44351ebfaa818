// Training report: lines for a person on stdout, progress on stderr, one JSON
// object an event in the metrics file.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_
#define TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/model/batch.h"
#include "tools/trainer/report/evaluation_report.h"
#include "tools/trainer/report/metrics.h"
#include "tools/trainer/report/progress.h"
#include "tools/trainer/report/step_report.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// A step that changed nothing, because a gradient was not finite.
struct SkippedStepReport {
  int64_t step = 0;           // of the job, from 1
  double loss_scale = 0;      // from the next step on; 0: it is not scaled
  int64_t skipped_steps = 0;  // of this run, with it
};

struct SummaryReport {
  int64_t steps = 0;
  int64_t skipped_steps = 0;  // of them
  Score last_steps;           // of the last step report
  Score test;                 // of no predictions: nothing was evaluated
  double samples_per_s = 0;
  double step_ms_median = 0;
  double peak_rss_mib = 0;
  double startup_ms = 0;
  // Of simulated devices: what each held at most, and what for.
  std::vector<std::pair<std::string, std::string>> device_memory;
  // Of simulated devices: for what rank 0's host waited for its own within a
  // step, and how often. Not there: they are none, or not asynchronous.
  std::optional<std::map<std::string, double>> host_waits;
  std::string weights_sha256;
  std::string checkpoint;      // where the last one lies; empty: none
  int64_t saves = 0;           // checkpoints that were written
  double save_stall_ms = 0;    // that the loop stood still for them
  int64_t flight_entries = 0;  // that rank 0 has noted for --flight_dir
  // See Strategy::Measurements.
  std::vector<std::pair<std::string, double>> measurements;
  // What to try next, and the flags for it beside the job's own.
  std::vector<std::pair<std::string, std::string>> advice;
};

// Speaks for the job on rank 0, and is silent on the others. Not thread-safe.
class Report {
 public:
  static Report Silent();
  // Events wait for Begin: a job that is refused before writes none.
  static Report Speaking(MetricsFile metrics);

  // Nothing more can refuse the job: from here on events are written, and those
  // from before first. Unless it `goes_on`, what the metrics file holds is
  // another job's, and is moved away: a line says where.
  absl::Status Begin(bool goes_on);

  // `shown` to a person, `all` to the metrics file.
  void ShowSettings(const SettingValues& shown, const SettingValues& all);
  struct Start {
    std::string job;         // which one it is (Job::id)
    int64_t step = 0;        // done before
    std::string checkpoint;  // that it goes on from; empty: it begins anew
  };
  // To the metrics file alone.
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

 private:
  explicit Report(std::unique_ptr<MetricsFile> metrics)
      : metrics_(std::move(metrics)) {}

  bool silent() const { return metrics_ == nullptr; }
  // A file that cannot be written costs no training: a line says so, once.
  void WriteEvent(const nlohmann::ordered_json& event);

  std::unique_ptr<MetricsFile> metrics_;  // null: silent
  bool has_begun_ = false;
  std::vector<nlohmann::ordered_json> waiting_;  // events, until then
  std::unique_ptr<Progress> progress_;
  bool misses_events_ = false;
  bool is_unheard_ = false;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_REPORT_H_
