// TensorBoard log: a job's report as curves, for --tensorboard_dir.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_TENSORBOARD_H_
#define TANDEM_TOOLS_TRAINER_REPORT_TENSORBOARD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/tensorboard/event_writer.h"
#include "core/tensorboard/summary.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {

// What is told waits for Begin: a job that is refused before leaves no file. An
// error names the flag; what else was told is there all the same. Not
// thread-safe.
class TensorBoardLog {
 public:
  // Swallows everything.
  TensorBoardLog() = default;
  // In a folder, which is made where it is not there. An empty path: swallows
  // everything.
  static absl::StatusOr<TensorBoardLog> Open(const std::string& folder);

  // Makes the file; and then writes what has waited.
  absl::Status Begin();
  absl::Status WriteWaiting();

  // All settings as a table, under `settings`.
  absl::Status AddSettings(const SettingValues& settings);
  // So many steps were done before. Points that the folder has from step
  // `drops_from` on are an earlier run's, and are no longer shown; none: all
  // are. Before Begin.
  void StartAfter(int64_t done, std::optional<int64_t> drops_from) {
    done_ = done;
    drops_from_ = drops_from;
  }
  absl::Status AddStep(const StepReport& step);
  absl::Status AddSkippedStep(const SkippedStepReport& skipped);
  absl::Status AddEvaluation(const EvaluationReport& evaluation);
  // Values that are no part of a report: texts, images, histograms.
  absl::Status Add(const Summary& values, int64_t step);

  // What was told is in the file.
  absl::Status Flush();

 private:
  std::string folder_;                   // empty: swallows
  std::unique_ptr<EventWriter> writer_;  // null: has not begun
  Summary settings_;
  int64_t done_ = 0;
  std::optional<int64_t> drops_from_;
  std::vector<std::pair<Summary, int64_t>> waiting_;  // until then
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_TENSORBOARD_H_
