#include "tools/trainer/report/prometheus.h"

#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/program/exit_code.h"
#include "core/program/version.h"

namespace tandem {
namespace {

// The text that Go's strconv.ParseFloat takes.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[32];
  const std::to_chars_result end =
      std::to_chars(digits, digits + sizeof(digits), value);
  return std::string(digits, end.ptr);
}

class Writer {
 public:
  void Counter(absl::string_view name, absl::string_view help, int64_t value) {
    Add(name, help, "counter", absl::StrCat(value));
  }
  void Gauge(absl::string_view name, absl::string_view help, double value) {
    Add(name, help, "gauge", Number(value));
  }
  // The labels are part of the name there.
  void Add(absl::string_view name, absl::string_view help,
           absl::string_view type, absl::string_view value,
           absl::string_view labels = "") {
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ",
                    type, "\n", name, labels, " ", value, "\n");
  }

  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void AddStep(const PrometheusValues& values, Writer& writer) {
  const StepReport& step = *values.step;
  writer.Counter("tandem_training_steps_total", "Steps that the job has done.",
                 step.step);
  writer.Counter("tandem_training_samples_total",
                 "Samples that the job has trained on.", step.samples);
  const bool is_text = step.tokens_per_s > 0;
  if (is_text) {
    writer.Counter("tandem_training_tokens_total",
                   "Tokens that the job has trained on.", step.tokens);
  }
  writer.Gauge("tandem_training_loss",
               "Mean loss of the steps since the report before.",
               step.score.loss());
  writer.Gauge("tandem_training_learning_rate",
               "Learning rate of the last step.", step.learning_rate);
  if (step.gradient_norm) {
    writer.Gauge("tandem_training_gradient_norm",
                 "Norm of the last step's gradients, before it was clipped.",
                 *step.gradient_norm);
  }
  writer.Gauge("tandem_training_step_duration_seconds",
               "Mean time of a step since the report before.",
               step.step_ms / 1e3);
  writer.Gauge("tandem_training_samples_per_second",
               "Samples of all replicas in a second.", step.samples_per_s);
  if (is_text) {
    writer.Gauge("tandem_training_tokens_per_second",
                 "Tokens of all replicas in a second.", step.tokens_per_s);
  }
  if (step.utilization > 0) {
    writer.Gauge("tandem_training_mfu_ratio",
                 "Model FLOPs utilization: the part of what the devices could "
                 "do that the model took.",
                 step.utilization);
  }
  writer.Gauge("tandem_process_resident_memory_bytes",
               "Memory that the process of rank 0 holds.",
               step.rss_mib * (1 << 20));
  writer.Gauge("tandem_training_last_step_timestamp_seconds",
               "When the last step was reported, in seconds since 1970.",
               values.step_time);
}

}  // namespace

std::string EscapeLabelValue(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string FormatPrometheus(const PrometheusValues& values) {
  Writer writer;
  writer.Add("tandem_info", "The job: what trains, and on how many ranks.",
             "gauge", "1",
             absl::StrCat("{version=\"", EscapeLabelValue(kVersion),
                          "\",model=\"", EscapeLabelValue(values.model),
                          "\",world_size=\"", values.world_size, "\"}"));
  writer.Counter("tandem_training_skipped_steps_total",
                 "Steps that changed nothing, because a gradient was not "
                 "finite.",
                 values.skipped_steps);
  if (values.step) AddStep(values, writer);
  if (values.evaluation) {
    const Score& score = values.evaluation->score;
    writer.Gauge("tandem_evaluation_loss", "Mean loss of the test set.",
                 score.loss());
    writer.Gauge("tandem_evaluation_accuracy_ratio",
                 "Part of the test set's predictions that are right.",
                 score.accuracy());
  }
  return writer.Take();
}

absl::StatusOr<std::unique_ptr<PrometheusFile>> PrometheusFile::Open(
    const std::string& path, const Job& job) {
  auto file = absl::WrapUnique(new PrometheusFile(path));
  file->values_.model = job.model;
  file->values_.world_size = job.world_size;
  // Which is never committed.
  const absl::Status tried = AtomicFile::Create(path).status();
  if (!tried.ok()) {
    return RefusedIfMendable(absl::Status(
        tried.code(), absl::StrCat("--prometheus_file: ", tried.message())));
  }
  return file;
}

PrometheusFile::~PrometheusFile() {
  // Nobody is left to be told.
  if (is_noted_) Write().IgnoreError();
}

void PrometheusFile::Note(const StepReport& step) {
  is_noted_ = true;
  values_.step = step;
  const std::chrono::duration<double> now =
      std::chrono::system_clock::now().time_since_epoch();
  values_.step_time = now.count();
}

void PrometheusFile::Note(const SkippedStepReport& skipped) {
  is_noted_ = true;
  values_.skipped_steps = skipped.skipped_steps;
}

void PrometheusFile::Note(const EvaluationReport& evaluation) {
  is_noted_ = true;
  values_.evaluation = evaluation;
}

absl::Status PrometheusFile::WriteIfDue(Clock::time_point now) {
  if (written_ && now - *written_ < kInterval) return absl::OkStatus();
  return Write(now);
}

absl::Status PrometheusFile::Write(Clock::time_point now) {
  written_ = now;
  is_noted_ = false;
  const absl::Status written =
      WriteFileAtomically(path_, FormatPrometheus(values_));
  if (written.ok()) return written;
  return absl::Status(written.code(),
                      absl::StrCat("--prometheus_file: ", written.message()));
}

}  // namespace tandem
