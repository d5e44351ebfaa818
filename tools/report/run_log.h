// Run log: what a training job's events (--metrics_file) say of it, with its
// curves thinned: a few megabytes, however long the job was.

#ifndef TANDEM_TOOLS_REPORT_RUN_LOG_H_
#define TANDEM_TOOLS_REPORT_RUN_LOG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/report/event_fields.h"
#include "tools/report/thinned_series.h"

namespace tandem {

struct RunLog {
  // By field: "loss", "auxiliary_losses/z_loss". Over steps.
  using Curves = std::map<std::string, ThinnedSeries>;
  static constexpr size_t kMostCurves = 64;

  std::string name;  // the run's, among others
  // What the job's last process wrote.
  EventFields settings;
  EventFields environment;
  EventFields summary;     // empty: it has not ended, or was stopped
  EventFields evaluation;  // the last one

  Curves steps;        // of "step" events
  Curves evaluations;  // of "eval" events
  int64_t last_step = 0;
  int64_t skipped_steps = 0;
  int64_t resumes = 0;       // how often it went on from a checkpoint
  int64_t dropped_from = 0;  // a step behind which it went on once: 0: none
  double seconds = 0;        // from first events to last ones, without pauses
  double ended = 0;          // when the last event was written, since 1970

  int64_t events = 0;
  int64_t unread_lines = 0;  // that are no events
  int64_t first_unread = 0;  // the first of them, counted from 1
  // Is the last line, which has no end, one of them? A job may be writing it.
  bool is_torn = false;

  // Null: there is none.
  const ThinnedSeries* Curve(const std::string& field) const;
  const ThinnedSeries* EvaluationCurve(const std::string& field) const;
};

// Reads events one by one. A job that goes on from an earlier step than its
// last one has taken back what lies between: points behind that step are
// dropped, as TensorBoard does. Not thread-safe.
class RunLogReader {
 public:
  // Longer lines are no events.
  static constexpr size_t kLongestLine = 1 << 20;

  // One line, without its end; empty ones are skipped.
  void Add(absl::string_view line);
  // The file's last line, which may have been cut off.
  void AddWithoutEnd(absl::string_view line);

  const RunLog& log() const { return log_; }
  RunLog& log() { return log_; }

 private:
  void NoteTime(const Event& event);
  void AddSettings(Event& event);
  void AddStart(const Event& event);
  void AddStep(const Event& event);
  void AddEvaluation(Event& event);
  void GoBackTo(int64_t step);
  void AddPoints(const EventFields& fields, int64_t step,
                 RunLog::Curves* curves);

  RunLog log_;
  int64_t lines_ = 0;
  std::optional<double> last_time_;  // of the process that wrote last
};

// All of a regular file, whatever its size, in one pass, given to `reader`.
// Errors, which name the path, are those of opening and reading it, and
// InvalidArgument for what is no regular file.
absl::Status ReadEvents(const std::string& path, RunLogReader* reader);

// What a file has. Lines that are no events are counted and left out. Errors
// are those of ReadEvents, and InvalidArgument where not one line is an
// event.
absl::StatusOr<RunLog> ReadRunLog(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_RUN_LOG_H_
