// Prometheus: how a job stands, as a file of the text exposition format
// (version 0.0.4), which node_exporter's textfile collector reads.

#ifndef TANDEM_TOOLS_TRAINER_REPORT_PROMETHEUS_H_
#define TANDEM_TOOLS_TRAINER_REPORT_PROMETHEUS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/trainer/report/reports.h"

namespace tandem {

// What is not known yet has no line.
struct PrometheusValues {
  std::string model;
  int world_size = 1;

  int64_t skipped_steps = 0;  // of this process
  // The last one that was reported, and when, in seconds since 1970.
  std::optional<StepReport> step;
  double step_time = 0;
  std::optional<EvaluationReport> evaluation;  // the last one
};

// Metrics in base units, each with its help and its type; names of counters end
// in _total.
std::string FormatPrometheus(const PrometheusValues& values);

// A label's value between its quotes.
std::string EscapeLabelValue(absl::string_view text);

// Replaces the file in one piece, so that a reader never sees half of it; also
// when it is destroyed, with what was noted since. Not thread-safe.
class PrometheusFile {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kInterval{15};

  struct Job {
    std::string model;
    int world_size = 1;
  };

  // Leaves what is there as it is, but tries whether it can be replaced:
  // FailedPrecondition and the like name the path.
  static absl::StatusOr<std::unique_ptr<PrometheusFile>> Open(
      const std::string& path, const Job& job);

  ~PrometheusFile();
  PrometheusFile(const PrometheusFile&) = delete;
  PrometheusFile& operator=(const PrometheusFile&) = delete;

  void Note(const StepReport& step);
  void Note(const SkippedStepReport& skipped);
  void Note(const EvaluationReport& evaluation);

  // Writes what was noted, unless it did so less than kInterval ago.
  absl::Status WriteIfDue(Clock::time_point now = Clock::now());
  absl::Status Write(Clock::time_point now = Clock::now());

 private:
  explicit PrometheusFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  PrometheusValues values_;
  bool is_noted_ = false;                     // more than was written
  std::optional<Clock::time_point> written_;  // nothing: not yet
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REPORT_PROMETHEUS_H_
